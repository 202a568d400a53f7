// The camera: where it is, what it looks at, how it moves. All in the frame of the .spz file: x right, y up, z back.

const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const add = (a, b, factor = 1) => a.map((value, k) => value + factor * b[k]);
const subtract = (a, b) => add(a, b, -1);
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const normalise = (a) => a.map((value) => value / Math.hypot(...a));

/** `v` turned about the unit vector `axis` by `angle` (Rodrigues). */
function rotate(v, axis, angle) {
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  const along = dot(axis, v) * (1 - c);
  const side = cross(axis, v);
  return v.map((value, k) => c * value + s * side[k] + along * axis[k]);
}

/** The angle that the shorter side of the picture shows, as in `reconstruct render --camera`. */
const FIELD_OF_VIEW = (50 / 180) * Math.PI;
/** The camera comes no nearer to looking straight up or down than this, radians. */
const POLE = 0.02;

class Camera {
  /** `data` is the camera_data of a job: in the frame of scene.ply, x right, y down, z forward. */
  constructor(data) {
    const turned = ({ x, y, z }) => [x, -y, -z];
    this.orbital = data.cameraType === "orbital";
    this.start = { position: turned(data.position), target: turned(data.lookAt) };
    this.up = normalise(turned(data.up));
    const view = normalise(subtract(this.start.target, this.start.position));
    if (Math.hypot(...cross(view, this.up)) < POLE) {
      // Straight along `up` every roll is as good; take the axis that is farthest from the view.
      const smallest = Math.min(...view.map(Math.abs));
      this.up = view.map((value) => (Math.abs(value) === smallest ? 1 : 0));
      this.up = normalise(this.up);
    }
    this.reset();
  }

  /** Where it is now, as camera_data. */
  data() {
    const turned = ([x, y, z]) => ({ x, y: -y, z: -z });
    const [position, lookAt, up] = [this.position, this.target, this.up].map(turned);
    return { position, lookAt, up, cameraType: this.orbital ? "orbital" : "drone" };
  }

  /** Back to where it began. */
  reset() {
    this.position = this.start.position;
    this.target = this.start.target;
  }

  /** Rows of the rotation from the world to the camera. */
  axes() {
    const forward = normalise(subtract(this.target, this.position));
    const right = normalise(cross(forward, this.up));
    return { right, down: cross(forward, right), forward };
  }

  /** Focal length in pixels of a picture of this size. */
  focal(width, height) {
    return Math.min(width, height) / 2 / Math.tan(FIELD_OF_VIEW / 2);
  }

  /** What speeds and steps are measured by, world units. */
  distance() {
    return Math.hypot(...subtract(this.target, this.position));
  }

  /** Goes around what it looks at; positive angles are to the right and up. */
  orbit(yaw, pitch) {
    this.position = add(this.target, this.#turned(subtract(this.position, this.target), yaw, -pitch));
  }

  /** Looks around from where it is; positive angles are to the right and up. */
  look(yaw, pitch) {
    this.target = add(this.position, this.#turned(subtract(this.target, this.position), -yaw, -pitch));
  }

  /** Moves with what it looks at, in its own directions, world units. */
  move(right, up, forward) {
    const axes = this.axes();
    let step = axes.right.map((value) => right * value);
    step = add(add(step, axes.down, -up), axes.forward, forward);
    this.position = add(this.position, step);
    this.target = add(this.target, step);
  }

  /** Nearer by this factor, or farther: orbital cameras go to or from their target, others take it along. */
  approach(factor) {
    if (this.orbital) {
      const distance = Math.max(this.distance() / factor, 2 * NEAR);
      this.position = add(this.target, this.axes().forward, -distance);
    } else {
      this.move(0, 0, this.distance() * Math.log(factor));
    }
  }

  /** `v` turned about `up` by `yaw`, anticlockwise from above, then away from `up` by `tilt` as far as the pole allows. */
  #turned(v, yaw, tilt) {
    const turned = rotate(v, this.up, yaw);
    const polar = Math.acos(Math.min(1, Math.max(-1, dot(normalise(turned), this.up))));
    const wanted = Math.min(Math.PI - POLE, Math.max(POLE, polar + tilt));
    return rotate(turned, normalise(cross(this.up, turned)), wanted - polar);
  }
}
