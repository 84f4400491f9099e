// Forms with data-passkey: the browser makes a passkey ("create") or proves one ("get"), and the form sends the answer.
// Without this script, or without WebAuthn, such a form stays hidden and the page says so.
(() => {
  "use strict";

  const decoded = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  const encoded = (buffer) => {
    const binary = Array.from(new Uint8Array(buffer), (byte) => String.fromCharCode(byte)).join("");
    return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
  };
  const listed = (descriptors) => (descriptors ?? []).map((each) => ({ ...each, id: decoded(each.id) }));

  const made = async (options) => {
    const publicKey = { ...options, challenge: decoded(options.challenge) };
    publicKey.user = { ...options.user, id: decoded(options.user.id) };
    publicKey.excludeCredentials = listed(options.excludeCredentials);
    const credential = await navigator.credentials.create({ publicKey });
    return [credential, { attestationObject: encoded(credential.response.attestationObject) }];
  };
  const proved = async (options) => {
    const publicKey = { ...options, challenge: decoded(options.challenge) };
    publicKey.allowCredentials = listed(options.allowCredentials);
    const credential = await navigator.credentials.get({ publicKey });
    const { authenticatorData, signature, userHandle } = credential.response;
    const parts = { authenticatorData: encoded(authenticatorData), signature: encoded(signature) };
    return [credential, userHandle?.byteLength ? { ...parts, userHandle: encoded(userHandle) } : parts];
  };

  const REASONS = {
    InvalidStateError: "This device or security key has a passkey of yours already.",
    NotAllowedError: "No passkey was used: it was canceled, took too long, or this device has none for this site.",
    ConstraintError: "This device or security key cannot keep a passkey or verify you. Use another one.",
    NotSupportedError: "This device or security key cannot make such a passkey. Use another one.",
    SecurityError: "Passkeys work only at the installation's own address. Open Setpoint there.",
  };
  const asked = async (form) => {
    const answer = await fetch(form.dataset.options, { method: "POST", body: new FormData(form) });
    const body = answer.headers.get("Content-Type")?.startsWith("application/json") ? await answer.json() : {};
    if (!answer.ok) throw new Error(body.message ?? "This page is too old. Reload it and try again.");
    return body.publicKey;
  };
  const answered = async (form) => {
    const options = await asked(form);
    const [credential, parts] = await (form.dataset.passkey === "create" ? made : proved)(options);
    const response = { clientDataJSON: encoded(credential.response.clientDataJSON), ...parts };
    return JSON.stringify({ id: credential.id, rawId: encoded(credential.rawId), type: credential.type, response });
  };

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.matches?.("form[data-passkey]")) return;
    event.preventDefault();
    const button = form.querySelector("button"), says = form.querySelector("[data-passkey-says]");
    button.disabled = true;
    says.hidden = true;
    try {
      form.elements.response.value = await answered(form);
      form.submit(); // sends it, without this event once more
    } catch (error) {
      says.textContent = REASONS[error.name] ?? (error.name === "TypeError" ? "Setpoint cannot be reached." : error.message);
      says.hidden = false;
      button.disabled = false;
    }
  });

  const has = Boolean(window.isSecureContext && window.PublicKeyCredential && navigator.credentials);
  for (const form of document.querySelectorAll("form[data-passkey]")) form.hidden = !has;
  for (const note of document.querySelectorAll("[data-passkey-none]")) note.hidden = has;
})();
