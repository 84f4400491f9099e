// Swagger UI on /api/v1/docs. A session's writes need the CSRF token, which the page's cookie holds.
"use strict";
const root = document.getElementById("swagger-ui");
const system = matchMedia("(prefers-color-scheme: dark)");
const paint = () => {
  const chosen = document.documentElement.dataset.bsTheme;
  document.documentElement.classList.toggle("dark-mode", chosen ? chosen === "dark" : system.matches);
};
paint();
system.addEventListener("change", paint);
SwaggerUIBundle({
  url: root.dataset.schema,
  dom_id: "#swagger-ui",
  deepLinking: true,
  presets: [SwaggerUIBundle.presets.apis],
  requestInterceptor: (request) => {
    const token = /(?:^|; )csrftoken=([^;]+)/.exec(document.cookie);
    if (token && new URL(request.url, location.href).origin === location.origin) {
      request.headers["X-CSRFToken"] = token[1];
    }
    return request;
  },
});
