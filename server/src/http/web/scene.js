// What can be done with what the viewer shows.

import "./copy.js";
import "./viewer.js";

const host = document.querySelector("[data-scene]");

/** Shows a button and says what it does. */
function button(id, act) {
  const element = document.getElementById(id);
  if (!element) return;
  element.hidden = false;
  element.addEventListener("click", act);
}

/** Saves a picture of what is shown. */
async function savePicture() {
  const picture = await host.viewer.picture();
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(picture), download: `${host.dataset.name}.png` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Once the scene is there. */
function ready() {
  button("save-picture", savePicture);
  button("measure", ({ currentTarget }) => {
    currentTarget.setAttribute("aria-pressed", host.viewer.measure());
    host.viewer.canvas.focus();
  });
  button("show-frames", async ({ currentTarget }) => {
    currentTarget.disabled = true;
    currentTarget.setAttribute("aria-pressed", await host.viewer.showFrames());
    currentTarget.disabled = false;
  });
  if (document.fullscreenEnabled) button("full-screen", () => host.requestFullscreen());
  // The form takes the view that is shown when it is sent.
  const form = document.getElementById("begin-here");
  form.hidden = false;
  form.addEventListener("submit", () => { form.elements.camera_data.value = JSON.stringify(host.viewer.camera.data()); });
}

if (host) {
  const watch = new MutationObserver(() => {
    if (host.dataset.state !== "ready") return;
    watch.disconnect();
    ready();
  });
  watch.observe(host, { attributes: true });
}
