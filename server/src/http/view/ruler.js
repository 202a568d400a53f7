// Measures between two points of the scene, where its unit is the metre. The first click, or M, sets one end, the second the
// other; M takes what is in the middle of the picture.

/** What is in front of a point may hide so much of it: the surface is where half of the light is gone. */
const HALF = 0.5;

/**
 * The point of the scene under a pixel of a picture of `width` x `height`: at the depth where half of the light along the ray is
 * gone, image formation as in renderer.js. Nothing where the ray goes through.
 * @returns {number[] | undefined} in the frame of the file
 */
function surfaceUnder(scene, camera, x, y, width, height) {
  const [floats, shorts, octets] = [Float32Array, Int16Array, Uint8Array].map((Kind) => new Kind(scene.splats.buffer));
  const { right, down, forward } = camera.axes();
  const focal = camera.focal(width, height);
  const [limitX, limitY] = [(0.65 * width) / focal, (0.65 * height) / focal];
  const hits = [];
  for (let i = 0; i < scene.count; i++) {
    const at = [0, 1, 2].map((axis) => floats[8 * i + axis] - camera.position[axis]);
    const z = dot(forward, at);
    const opacity = octets[32 * i + 15] / 255;
    if (z <= NEAR || opacity < 1 / 255) continue;
    const scales = [0, 1, 2].map((axis) => Math.exp(octets[32 * i + 24 + axis] / 16 - 10));
    const [slopeX, slopeY] = [dot(right, at) / z, dot(down, at) / z];
    const [dx, dy] = [x - (focal * slopeX + 0.5 * width), y - (focal * slopeY + 0.5 * height)];
    // Nearly all are too far away for any direction to matter: 4 deviations of the longest axis, seen as askew as may be.
    const reach = 4 * (1 + Math.hypot(limitX, limitY)) * Math.max(...scales) * (focal / z) + 4;
    if (dx * dx + dy * dy > reach * reach) continue;
    const [qx, qy, qz, qw] = normalise([0, 1, 2, 3].map((k) => shorts[16 * i + 8 + k]));
    const columns = [
      [1 - 2 * (qy * qy + qz * qz), 2 * (qx * qy + qw * qz), 2 * (qx * qz - qw * qy)],
      [2 * (qx * qy - qw * qz), 1 - 2 * (qx * qx + qz * qz), 2 * (qy * qz + qw * qx)],
      [2 * (qx * qz + qw * qy), 2 * (qy * qz - qw * qx), 1 - 2 * (qx * qx + qy * qy)],
    ];
    const clamp = (value, limit) => Math.min(limit, Math.max(-limit, value));
    let [xx, xy, yy] = [0.3, 0, 0.3];
    for (let k = 0; k < 3; k++) {
      const depth = dot(forward, columns[k]);
      const halfX = (focal / z) * scales[k] * (dot(right, columns[k]) - clamp(slopeX, limitX) * depth);
      const halfY = (focal / z) * scales[k] * (dot(down, columns[k]) - clamp(slopeY, limitY) * depth);
      xx += halfX * halfX;
      xy += halfX * halfY;
      yy += halfY * halfY;
    }
    const power = (yy * dx * dx - 2 * xy * dx * dy + xx * dy * dy) / (xx * yy - xy * xy);
    const alpha = Math.min(0.999, opacity * Math.exp(-0.5 * power));
    if (alpha >= 1 / 255) hits.push([z, alpha]);
  }
  hits.sort((a, b) => a[0] - b[0]);
  let light = 1;
  for (const [z, alpha] of hits) {
    light *= 1 - alpha;
    if (light < HALF) {
      const ray = add(add(forward, right, (x - 0.5 * width) / focal), down, (y - 0.5 * height) / focal);
      return add(camera.position, ray, z);
    }
  }
  return undefined;
}

/** A length for people. */
function metres(length) {
  return length < 1 ? `${(100 * length).toFixed(1)} cm` : `${length.toFixed(2)} m`;
}

class Ruler {
  /** Over `canvas`, in the element `host`; `say` tells people what to do and what came out. */
  constructor(host, canvas, scene, camera, say, onChange) {
    Object.assign(this, { canvas, scene, camera, say, onChange, ends: [] });
    const make = (name) => document.createElementNS("http://www.w3.org/2000/svg", name);
    this.drawing = make("svg");
    this.drawing.setAttribute("class", "ruler");
    this.drawing.setAttribute("aria-hidden", "true");
    this.line = make("line");
    this.dots = [make("circle"), make("circle")];
    this.label = make("text");
    this.drawing.append(this.line, ...this.dots, this.label);
    host.append(this.drawing);
    canvas.addEventListener("pointerdown", (event) => { this.pressed = [event.clientX, event.clientY]; });
    canvas.addEventListener("pointerup", (event) => this.#released(event));
    canvas.addEventListener("keydown", (event) => {
      if (this.on && event.code === "KeyM" && !event.ctrlKey && !event.metaKey && !event.altKey) {
        this.#end(canvas.clientWidth / 2, canvas.clientHeight / 2);
      }
    });
  }

  /** Measures in this scene from now on. */
  measureIn(scene) {
    this.scene = scene;
  }

  /** Begins to measure, or takes the ruler away; says which. */
  toggle() {
    this.on = !this.on;
    this.ends = [];
    this.say(this.on ? "Measure: click a point, or press M for the middle of the picture." : "");
    this.onChange();
    return this.on;
  }

  /** A click, if the pointer was not dragged. */
  #released(event) {
    const [x, y] = this.pressed ?? [];
    if (!this.on || event.button !== 0 || !(Math.hypot(event.clientX - x, event.clientY - y) < 4)) return;
    const { left, top } = this.canvas.getBoundingClientRect();
    this.#end(event.clientX - left, event.clientY - top);
  }

  #end(x, y) {
    const { canvas } = this;
    const point = surfaceUnder(this.scene, this.camera, x, y, canvas.clientWidth, canvas.clientHeight);
    if (!point) {
      this.say("There is nothing to measure at that point.");
      return;
    }
    this.ends = this.ends.length === 2 ? [point] : [...this.ends, point];
    const [one, other] = this.ends;
    this.length = other && Math.hypot(...subtract(other, one));
    this.say(other ? `${metres(this.length)}. Click again for another length.` : "Now the other end.");
    this.onChange();
  }

  /** Draws the ruler as the camera sees it now. */
  draw() {
    const { right, down, forward } = this.camera.axes();
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const focal = this.camera.focal(width, height);
    const places = this.ends.map((end) => {
      const at = subtract(end, this.camera.position);
      const z = dot(forward, at);
      return z > NEAR ? [(focal * dot(right, at)) / z + width / 2, (focal * dot(down, at)) / z + height / 2] : undefined;
    });
    const set = (element, attributes) => Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
    const show = (element, place, attributes) => {
      element.style.display = place ? "" : "none";
      if (place) set(element, attributes(place));
    };
    this.dots.forEach((circle, k) => show(circle, places[k], ([x, y]) => ({ cx: x, cy: y, r: 4 })));
    const both = places[0] && places[1] ? places : undefined;
    show(this.line, both, ([[x1, y1], [x2, y2]]) => ({ x1, y1, x2, y2 }));
    show(this.label, both, ([[x1, y1], [x2, y2]]) => ({ x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 8 }));
    this.label.textContent = both ? metres(this.length) : "";
  }
}
