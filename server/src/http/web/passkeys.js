// Passkeys, for browsers that have them: signing in with one, and adding one. The browser and its device do the work; what they say is
// sent as a form.

const encoder = new TextEncoder();

/** Bytes as text that a form can send. */
const text = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
/** And back. */
const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));

/** The JSON of an answer; an error has the server's words. */
async function ask(address, options = {}) {
  const answer = await fetch(address, { ...options, headers: { Accept: "application/json" }, redirect: "manual" });
  if (answer.type === "opaqueredirect") throw new Error("You are signed out. Sign in again first.");
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(said.error ?? `The server answered with ${answer.status}.`);
  return said;
}

/** Sends the form with what a device has said. */
function send(form, fields) {
  for (const [name, buffer] of Object.entries(fields)) form.elements[name].value = text(buffer);
  form.submit();
}

/** What went wrong, in words. Browsers say little, so that pages learn nothing of devices. */
function reason(error) {
  if (error.name === "NotAllowedError") return "It was cancelled, took too long, or there is no passkey for this page on this device.";
  if (error.name === "InvalidStateError") return "This device has a passkey for you already.";
  return error.message;
}

/** Has `work` done when the form is sent, and shows why not if it fails. */
function instead(form, work) {
  const problem = form.querySelector(".problem");
  const button = form.querySelector("button");
  form.hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.hidden = true;
    button.disabled = true;
    try {
      await work();
    } catch (error) {
      problem.textContent = reason(error);
      problem.hidden = false;
    } finally {
      button.disabled = false;
    }
  });
}

const using = document.querySelector("#use-passkey");
const adding = document.querySelector("#add-passkey");

if (window.PublicKeyCredential) {
  if (using) instead(using, async () => {
    const { challenge, ...asked } = await ask(using.action);
    const { rawId, response } = await navigator.credentials.get({ publicKey: { ...asked, challenge: encoder.encode(challenge) } });
    send(using, {
      credential: rawId, client_data: response.clientDataJSON, authenticator_data: response.authenticatorData,
      signature: response.signature, user_handle: response.userHandle ?? new ArrayBuffer(0),
    });
  });
  if (adding) instead(adding, async () => {
    const password = adding.querySelector("[type=password]");
    const body = new URLSearchParams({ current: password?.value ?? "" });
    const asked = await ask(adding.dataset.begin, { method: "POST", body });
    const { response } = await navigator.credentials.create({
      publicKey: {
        ...asked, challenge: encoder.encode(asked.challenge), user: { ...asked.user, id: bytes(asked.user.id) },
        excludeCredentials: asked.excludeCredentials.map((id) => ({ type: "public-key", id: bytes(id) })),
      },
    });
    send(adding, { client_data: response.clientDataJSON, authenticator_data: response.getAuthenticatorData() });
  });
}
