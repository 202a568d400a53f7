// The viewer: shows the scene of an .spz file in an element of the page.
//
// The files spz.js, worker.js, renderer.js, camera.js, controls.js, ruler.js, frames.js and this one are one module, in this order. It needs
// nothing but three addresses, which may be data: addresses too, and makes all other elements itself:
//
//   <main data-scene="scene.spz" data-preview="preview.jpg" data-camera="camera.json"></main>
//
// With `data-first`, the address of the same scene with few splats, that is shown until the whole has come. `data-state` of
// the element becomes loading, first (if there is such a scene), ready or failed.

const HELP = {
  orbital: "Drag or arrow keys: turn. Wheel, pinch, + and −: zoom. Two fingers, right button or W A S D Q E: move. Double click or R: back.",
  drone: "Drag or arrow keys: look. W A S D Q E, wheel or pinch: fly. Two fingers or right button: move sideways. Double click or R: back.",
};
/** More pixels than this to a CSS pixel cost time and show nothing. */
const MAX_PIXEL_RATIO = 2;
/** Of these while few splats are shown: they are large, and cover as much as all do, so that finer pixels only take time. */
const RATIO_OF_FIRST = 0.5;

class Viewer {
  static #count = 0;

  /** `host` gets the elements; `scene`, `preview`, `camera` and, where there are such, `first` and `frames` are addresses. */
  constructor(host, { scene, first, preview, camera, frames }) {
    Object.assign(this, { host, addresses: { scene, first, preview, camera, frames } });
    const element = (name, properties) => Object.assign(document.createElement(name), properties);
    this.canvas = element("canvas", { tabIndex: 0, ariaLabel: `3D scene: ${document.title}` });
    this.canvas.setAttribute("role", "application");
    this.poster = element("img", { src: preview, alt: `Preview of ${document.title}` });
    this.progress = element("progress", { ariaLabel: "Loading the scene" });
    this.status = element("p", { className: "status" });
    this.status.setAttribute("role", "status");
    this.help = element("p", { className: "help" });
    this.help.id = `viewer-help-${Viewer.#count++}`;
    this.canvas.setAttribute("aria-describedby", this.help.id);
    this.spoken = element("p", { className: "spoken" });
    this.spoken.setAttribute("role", "status");
    host.append(this.canvas, this.poster, this.progress, this.status, this.help, this.spoken);
  }

  /** Loads the scene and shows it. Whatever goes wrong is said in the page. */
  async start() {
    this.host.dataset.state = "loading";
    try {
      if (!("DecompressionStream" in window)) throw new Error("this browser is too old to unpack it (no DecompressionStream)");
      this.renderer = new Renderer(this.canvas);
      const { first, scene } = this.addresses;
      // The whole is asked for once the few splats have come: on a slow line they would wait for each other.
      // Without them it goes, too.
      const fewer = first && this.#load(first, () => {}).catch((error) => console.warn(error));
      const [camera, few] = await Promise.all([this.#fetchCamera(), fewer]);
      this.#begin(camera);
      const whole = this.#load(scene, (received, total) => this.#showProgress(received, total));
      whole.catch(() => {}); // told below
      if (few) await this.#show(few, "first");
      await this.#show(await whole, "ready");
    } catch (error) {
      this.#fail(error);
    }
  }

  /** A PNG of what is shown. */
  picture() {
    // Drawn now, because a canvas keeps what it shows only until the browser has taken it.
    this.renderer.draw(this.camera);
    return new Promise((done) => this.canvas.toBlob(done));
  }

  /** Begins to measure, or ends it; says which. Lengths are those of the file, taken for metres. */
  measure() {
    const say = (text) => { this.spoken.textContent = text; };
    this.ruler ??= new Ruler(this.host, this.canvas, this.scene, this.camera, say, () => this.#requestFrame());
    return this.ruler.toggle();
  }

  /** Shows from where the frames were taken, or no longer; says which. */
  async showFrames() {
    if (this.frames) {
      this.frames.remove();
      this.frames = undefined;
      this.spoken.textContent = "";
      return false;
    }
    try {
      const response = await fetch(this.addresses.frames);
      if (!response.ok) throw new Error(`the server answers with ${response.status}`);
      const frames = await response.json();
      if (frames.length === 0) throw new Error("an older version made the scene, which did not keep them");
      this.frames = new FramesOfCapture(this.host, this.canvas, this.camera, frames);
      const doubtful = frames.filter(({ doubt }) => doubt >= 1).length;
      const doubts = doubtful > 0 ? `${doubtful} of them may be off by more than those of a good scene (red).` : "None is in doubt.";
      this.spoken.textContent = `The way of the camera, with ${frames.length} frames. ${doubts} Move back to see all of it.`;
      this.#requestFrame();
      return true;
    } catch (error) {
      this.spoken.textContent = `The way of the camera cannot be shown: ${error.message}.`;
      return false;
    }
  }

  async #fetchCamera() {
    const response = await fetch(this.addresses.camera);
    if (!response.ok) throw new Error(`the server answers with ${response.status}`);
    return new Camera(await response.json());
  }

  #showProgress(received, total) {
    const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
    if (total > 0) this.progress.value = received / total;
    this.status.textContent = total > 0 ? `${megabytes(received)} of ${megabytes(total)} MB` : `${megabytes(received)} MB`;
  }

  #fail(error) {
    console.error(error);
    this.host.dataset.state = "failed";
    this.status.textContent = `The scene cannot be shown: ${error.message}.`;
  }

  #begin(camera) {
    this.camera = camera;
    this.help.textContent = camera.orbital ? HELP.orbital : HELP.drone;
    this.controls = new Controls(this.canvas, camera, () => this.#requestFrame());
    this.canvas.addEventListener("webglcontextlost", () => {
      this.#fail(new Error("the graphics card was taken away; load the page again"));
    });
    new ResizeObserver(() => this.#requestFrame()).observe(this.canvas);
    // The pixel ratio changes with the zoom of the browser and with the screen that the window is on.
    window.addEventListener("resize", () => this.#requestFrame());
  }

  /** The scene of an address, and the worker that fetched it and sorts it. */
  #load(address, onProgress) {
    const worker = startWorker(NEAR);
    return new Promise((done, fail) => {
      worker.onmessage = ({ data }) => {
        if (data.scene) done({ scene: data.scene, worker });
        else if (data.error) fail(new Error(data.error));
        else onProgress(data.received, data.total);
      };
      worker.onerror = (event) => fail(new Error(event.message || "its worker does not start"));
      // A worker has no address of its own to which another could be relative.
      worker.postMessage({ address: new URL(address, document.baseURI).href });
    });
  }

  /** Shows a scene in the place of what was shown before, once it is sorted. */
  #show({ scene, worker }, state) {
    const view = this.#view();
    return new Promise((done, fail) => {
      worker.onerror = (event) => fail(new Error(event.message || "the sorter fails"));
      worker.onmessage = ({ data }) => {
        try {
          this.renderer.load(scene);
        } catch (error) {
          fail(error);
          return;
        }
        // The card has them now.
        delete scene.harmonics;
        this.sorter?.terminate();
        Object.assign(this, { scene, sorter: worker, sortedFor: view, arriving: state, isWhole: state === "ready" });
        this.ruler?.measureIn(scene);
        worker.onmessage = ({ data }) => this.#draw(data.order);
        this.#draw(data.order);
        done();
      };
      this.#sort(worker);
    });
  }

  /** Draws from now on in this order. */
  #draw(order) {
    this.sorting = false;
    this.renderer.setOrder(order);
    this.#requestFrame();
  }

  /** Draws with the next frame of the screen. Nothing is drawn while nothing changes. */
  #requestFrame() {
    this.requested ??= requestAnimationFrame((now) => {
      this.requested = undefined;
      this.#frame(now);
    });
  }

  #frame(now) {
    if (this.host.dataset.state === "failed") return;
    // A key counts from the first frame on; a pause of the page is no long step.
    const moving = this.controls.advance(Math.min(0.1, (now - (this.lastFrame ?? now)) / 1000));
    this.lastFrame = moving ? now : undefined;
    if (moving) this.#requestFrame();

    const { canvas, camera } = this;
    const ratio = Math.min(window.devicePixelRatio, MAX_PIXEL_RATIO) * (this.isWhole ? 1 : RATIO_OF_FIRST);
    const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((side) => Math.max(1, Math.round(side * ratio)));
    // Setting a size clears the canvas, so only if it is another.
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    if (!this.sorter) return;
    const view = this.#view();
    // If the sorter is busy, the next frame comes back to it.
    if (!this.sorting && view !== this.sortedFor) {
      Object.assign(this, { sorting: true, sortedFor: view });
      this.#sort(this.sorter);
    }
    this.renderer.draw(camera);
    this.ruler?.draw();
    this.frames?.draw();
    if (this.arriving) this.host.dataset.state = this.arriving;
    this.arriving = undefined;
  }

  #view() {
    return [...this.camera.axes().forward, ...this.camera.position].join();
  }

  #sort(worker) {
    worker.postMessage({ forward: this.camera.axes().forward, centre: this.camera.position });
  }
}

for (const host of document.querySelectorAll("[data-scene]")) {
  // For scripts of the page that want more of it.
  host.viewer = new Viewer(host, host.dataset);
  host.viewer.start();
}
