// Mouse, touch and keyboard move the camera.
//
//                     orbital                     drone
//   drag, arrows      around the target           look around
//   wheel, pinch, +-  nearer, farther             forward, back
//   W A S D Q E       move, the target too        fly (Shift: faster)
//   two fingers, right button, Shift and drag     move sideways, up and down
//   double click, R, Home                         back to the start

/** Radians for a drag over the shorter side of the canvas. */
const DRAG_ANGLE = Math.PI;
/** Of a key that is held: radians a second, distances to the target a second, factor a second. */
const KEY_ANGLE = 1.2;
const KEY_SPEED = 0.6;
const KEY_ZOOM = 2.5;

const KEYS = {
  ArrowLeft: { yaw: -1 }, ArrowRight: { yaw: 1 }, ArrowUp: { pitch: 1 }, ArrowDown: { pitch: -1 },
  KeyA: { right: -1 }, KeyD: { right: 1 }, KeyQ: { up: -1 }, KeyE: { up: 1 }, KeyS: { forward: -1 }, KeyW: { forward: 1 },
  Equal: { zoom: 1 }, NumpadAdd: { zoom: 1 }, Minus: { zoom: -1 }, NumpadSubtract: { zoom: -1 },
};

class Controls {
  /** `onChange` is called whenever `camera` was moved, or is to be moved by a key that is held. */
  constructor(canvas, camera, onChange) {
    Object.assign(this, { canvas, camera, onChange, pointers: new Map(), keys: new Set(), fast: false });
    const listen = (name, handler) => canvas.addEventListener(name, handler, { passive: false });
    listen("pointerdown", (event) => this.#pointerDown(event));
    listen("pointermove", (event) => this.#pointerMove(event));
    for (const name of ["pointerup", "pointercancel", "lostpointercapture"]) {
      listen(name, (event) => this.pointers.delete(event.pointerId));
    }
    listen("contextmenu", (event) => event.preventDefault());
    listen("dblclick", () => this.#reset());
    listen("wheel", (event) => this.#wheel(event));
    listen("keydown", (event) => this.#keyDown(event));
    listen("keyup", (event) => {
      this.keys.delete(event.code);
      this.fast = event.shiftKey;
    });
    listen("blur", () => this.keys.clear());
  }

  /** Moves the camera as the keys that are held say, for so many seconds; says whether there are any. */
  advance(seconds) {
    const held = { yaw: 0, pitch: 0, right: 0, up: 0, forward: 0, zoom: 0 };
    for (const code of this.keys) {
      for (const [name, sign] of Object.entries(KEYS[code])) held[name] += sign;
    }
    const [angle, speed] = [KEY_ANGLE * seconds, KEY_SPEED * (this.fast ? 4 : 1) * seconds];
    const { camera } = this;
    if (held.yaw || held.pitch) this.#turn(angle * held.yaw, angle * held.pitch);
    if (held.right || held.up) camera.move(...[held.right, held.up].map((sign) => sign * speed * camera.distance()), 0);
    if (held.forward) camera.approach(Math.exp(speed * held.forward));
    if (held.zoom) camera.approach(KEY_ZOOM ** (seconds * held.zoom));
    return this.keys.size > 0;
  }

  /** To the right and up: around the target, or of the view. */
  #turn(yaw, pitch) {
    if (this.camera.orbital) this.camera.orbit(yaw, pitch);
    else this.camera.look(yaw, pitch);
  }

  #reset() {
    this.camera.reset();
    this.onChange();
  }

  #pointerDown(event) {
    event.preventDefault();
    this.canvas.focus();
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
  }

  #pointerMove(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = [event.clientX, event.clientY];
    const moved = [now[0] - before[0], now[1] - before[1]];
    const { camera, canvas } = this;
    const side = Math.min(canvas.clientWidth, canvas.clientHeight);
    // So much of the world, at the target, is under a pixel.
    const grain = camera.distance() / camera.focal(canvas.clientWidth, canvas.clientHeight);
    if (this.pointers.size === 2) {
      // Each finger brings its share: half of the move, and all of what it changes in their distance.
      const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      const apart = (place) => Math.max(20, Math.hypot(place[0] - other[0], place[1] - other[1]));
      camera.approach(apart(now) / apart(before));
      camera.move(-0.5 * moved[0] * grain, 0.5 * moved[1] * grain, 0);
    } else if (event.shiftKey || event.buttons > 1) {
      camera.move(-moved[0] * grain, moved[1] * grain, 0);
    } else {
      // The scene follows the pointer, but a mouse in a drone says where to look.
      const sign = camera.orbital || event.pointerType === "touch" ? -1 : 1;
      const angle = (sign * DRAG_ANGLE) / side;
      this.#turn(angle * moved[0], -angle * moved[1]);
    }
    this.pointers.set(event.pointerId, now);
    this.onChange();
  }

  #wheel(event) {
    event.preventDefault();
    const pixels = event.deltaY * [1, 16, 400][event.deltaMode];
    this.camera.approach(Math.exp(-0.001 * Math.max(-400, Math.min(400, pixels))));
    this.onChange();
  }

  #keyDown(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.code === "KeyR" || event.code === "Home") {
      this.#reset();
    } else if (KEYS[event.code]) {
      this.keys.add(event.code);
      this.fast = event.shiftKey;
      this.onChange();
    } else {
      return;
    }
    event.preventDefault();
  }
}
