// Small behaviors of every page. Everything here is a comfort: each page works without it.
(() => {
  "use strict";

  // Ages stay true while a page is open. Same words as the `duration` filter of common/templatetags/setpoint.py.
  const duration = (seconds) => {
    const s = Math.max(Math.floor(seconds), 0);
    const minutes = Math.floor(s / 60), hours = Math.floor(s / 3600), days = Math.floor(s / 86400);
    if (s < 60) return `${s} s`;
    if (minutes < 60) return `${minutes} min`;
    if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
    return hours % 24 && days < 30 ? `${days} d ${hours % 24} h` : `${days} d`;
  };
  const tick = () => {
    for (const time of document.querySelectorAll("time[data-ago]")) {
      const passed = (Date.now() - Date.parse(time.dateTime)) / 1000;
      const future = passed < -60; // less is a visitor's clock that goes slow
      const text = future ? `in ${duration(-passed)}` : `${duration(passed)} ago`;
      if (time.textContent !== text) time.textContent = text;
    }
  };
  setInterval(() => document.hidden || tick(), 1000);

  // Live parts ask again only while somebody looks.
  document.addEventListener("htmx:config:request", (event) => {
    const { ctx } = event.detail;
    if (ctx.sourceEvent?.type === "every" && document.hidden) event.preventDefault();
  });

  // A session that ended answers with the log-in page: go there rather than show it inside this one, unless something
  // was typed here, which would be lost.
  let isTyped = false;
  document.addEventListener("input", (event) => {
    isTyped ||= event.target.form?.method === "post";
  });
  document.addEventListener("htmx:before:response", (event) => {
    const { raw } = event.detail.ctx.response;
    const isElsewhere = raw.redirected && new URL(raw.url).pathname !== location.pathname;
    if (!isElsewhere && raw.headers.get("Setpoint-Session") !== "ended") return;
    event.preventDefault();
    const note = document.querySelector("[data-ended]");
    if (isTyped && note) note.hidden = false;
    else location.reload();
  });

  // When an update does not come, the page says so instead of looking alive.
  const mark = (stale) => {
    for (const live of document.querySelectorAll("[data-live]")) live.classList.toggle("stale", stale);
    for (const note of document.querySelectorAll("[data-lost]")) note.hidden = !stale;
  };
  document.addEventListener("htmx:error", () => mark(true));
  document.addEventListener("htmx:response:error", () => mark(true));

  // What a person folded or unfolded stays so when the part is updated.
  const chosen = new Map();
  const fold = (button, open) => {
    button.setAttribute("aria-expanded", String(open));
    const body = document.getElementById(button.getAttribute("aria-controls"));
    if (body) body.hidden = !open;
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button.fold[aria-controls]");
    if (!button) return;
    const open = button.getAttribute("aria-expanded") !== "true";
    chosen.set(button.getAttribute("aria-controls"), open);
    fold(button, open);
  });
  document.addEventListener("click", (event) => {
    const details = event.target.closest?.("summary")?.parentElement;
    if (details?.id) chosen.set(details.id, !details.open);
  });
  document.addEventListener("htmx:after:swap", () => {
    mark(false);
    for (const [id, open] of chosen) {
      const button = document.querySelector(`button.fold[aria-controls="${CSS.escape(id)}"]`);
      if (button) fold(button, open);
      const details = document.getElementById(id);
      if (details instanceof HTMLDetailsElement) details.open = open;
    }
    tick();
  });

  // Not possible now: the reason stands beside the button, so a press does nothing but point at it.
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[aria-disabled=true]");
    if (button) event.preventDefault();
  }, true);

  // `data-copy="#id"`: take that element's text to the clipboard.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (!button) return;
    const source = document.querySelector(button.dataset.copy);
    await navigator.clipboard?.writeText(source.value ?? source.textContent.trim());
    button.querySelector("[data-said]").textContent = "Copied";
  });

  // A select or a box with data-submit sends its form when changed; without JavaScript the button beside it does.
  document.addEventListener("change", (event) => {
    if (event.target.matches?.("[data-submit]")) event.target.form.requestSubmit();
  });

  // A chosen file's text goes into the box that it belongs to, where it can be read before it is sent.
  document.addEventListener("change", async (event) => {
    const { into } = event.target.dataset ?? {};
    if (!into || !event.target.files?.length) return;
    const file = event.target.files[0];
    if (file.size <= 256 * 1024) document.querySelector(into).value = await file.text();
  });

  // A link to a line of a text area selects that line there.
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-line]");
    const box = link && document.querySelector(link.hash);
    if (!box?.setSelectionRange) return;
    event.preventDefault();
    const lines = box.value.split("\n"), at = Math.min(Number(link.dataset.line), lines.length) - 1;
    const start = lines.slice(0, at).reduce((sum, line) => sum + line.length + 1, 0);
    box.focus();
    box.setSelectionRange(start, start + lines[at].length);
    box.scrollTop = Math.max(0, (box.scrollHeight * at) / lines.length - box.clientHeight / 2);
  });

  // A verdict's button names what it will do.
  const name = (choice) => {
    const button = choice.form?.querySelector("[data-verdict]");
    if (button && choice.checked) button.textContent = choice.dataset.says;
  };
  document.querySelectorAll("[data-says]").forEach(name);
  document.addEventListener("change", (event) => event.target.dataset?.says && name(event.target));

  // Search: `/` leads to it from anywhere, what is found hangs below the box, and arrows walk through it.
  const finder = document.getElementById("find");
  const box = finder?.querySelector("input");
  const hits = document.getElementById("hits");
  const showHits = () => {
    if (hits) hits.hidden = !box.value.trim() || !hits.innerHTML.trim() || !finder.contains(document.activeElement);
  };
  document.addEventListener("keydown", (event) => {
    if (!box || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && !event.target.closest?.("input, textarea, select, [contenteditable]")) {
      const wanted = box.offsetParent ? box : document.getElementById("f-find");
      if (!wanted) return;
      event.preventDefault();
      wanted.focus();
      wanted.select();
    } else if (finder.contains(event.target) && event.key === "Escape") {
      box.focus(); // which shows them once more
      hits.hidden = true;
    } else if (finder.contains(event.target) && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      const stops = [box, ...(hits.hidden ? [] : hits.querySelectorAll("a"))];
      const next = stops[stops.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1)];
      if (next) {
        event.preventDefault();
        next.focus();
      }
    }
  });
  finder?.addEventListener("input", () => box.value.trim() || (hits.hidden = true));
  finder?.addEventListener("focusin", showHits);
  finder?.addEventListener("focusout", (event) => finder.contains(event.relatedTarget) || (hits.hidden = true));
  document.addEventListener("htmx:after:swap", showHits);
  // htmx begins in a task of its own behind all scripts: what was typed before that is searched for now.
  setTimeout(() => box?.value && box === document.activeElement && box.dispatchEvent(new Event("input", {bubbles: true})));

  // Sent once: a second press while the first is on its way does nothing.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post" || event.defaultPrevented) return;
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "1";
    setTimeout(() => delete form.dataset.sent, 4000);
  });

  // Where the focus begins after an action: at what is said about it (`autofocus` in the page, which needs no script),
  // at the first field that was refused, or at the control that asked for this page once more (`data-back`).
  const BACK = "setpoint-focus";
  document.addEventListener("submit", (event) => {
    const control = event.submitter?.id ? event.submitter : document.activeElement;
    if (control?.id && (control.form?.method === "get" || control.matches("[data-back]")))
      sessionStorage.setItem(BACK, `${location.pathname} ${control.id}`);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-back]");
    if (link?.id) sessionStorage.setItem(BACK, `${location.pathname} ${link.id}`);
  });
  const [path, id] = (sessionStorage.getItem(BACK) ?? "").split(" ");
  sessionStorage.removeItem(BACK);
  if (!location.hash) {
    const back = path === location.pathname ? document.getElementById(id) : null;
    const said = document.querySelector("main .flash[autofocus], main #verdict[autofocus]");
    const isRefused = performance.getEntriesByType("navigation")[0]?.responseStatus >= 400;
    (said ?? (isRefused && document.querySelector("main [aria-invalid=true]") || back))?.focus();
  }
})();
