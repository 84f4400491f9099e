// The form with data-saml is sent as soon as the page is there; without this script its button does it.
(() => {
  "use strict";

  const form = document.querySelector("form[data-saml]");
  if (!form) return;
  form.submit();
  form.querySelector("button").disabled = true; // an answer counts once: a click must not take the page from the first
})();
