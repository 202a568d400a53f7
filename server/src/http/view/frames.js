// Shows from where the frames were taken: the way of the camera, and on it small cameras in the colour of their doubt.

/** More cameras than this hide the scene. */
const MOST_CAMERAS = 120;
/** The length of a camera that is drawn, as a share of the size of the way. */
const CAMERA_LENGTH = 0.03;

/** Green where there is no doubt (0), over yellow, to red where it is 1 and more; grey where nothing is known. As in poses.jpg. */
function colourOfDoubt(doubt) {
  return doubt === null ? "#bbb" : `hsl(${Math.round(120 * (1 - Math.min(1, doubt)))} 90% 55%)`;
}

/** The corners of a camera: its centre and those of its picture at the distance `length`, in the frame of the .spz file. */
function cornersOf({ position, forward, down, extent }, length) {
  const turned = ([x, y, z]) => [x, -y, -z];
  const [centre, ahead, below] = [position, forward, down].map(turned);
  const right = cross(below, ahead);
  const middle = add(centre, ahead, length);
  const corner = (x, y) => add(add(middle, right, x * extent[0] * length), below, y * extent[1] * length);
  return [centre, corner(-1, -1), corner(1, -1), corner(1, 1), corner(-1, 1)];
}

/** The lines of a camera, by its corners. */
const LINES = [[0, 1], [0, 2], [0, 3], [0, 4], [1, 2], [2, 3], [3, 4], [4, 1]];

class FramesOfCapture {
  /** Over the picture, in the element `host`; `frames` is what the server tells of them. */
  constructor(host, canvas, camera, frames) {
    Object.assign(this, { canvas, camera });
    const make = (name) => document.createElementNS("http://www.w3.org/2000/svg", name);
    this.drawing = make("svg");
    this.drawing.setAttribute("class", "frames");
    this.drawing.setAttribute("aria-hidden", "true");
    const centres = frames.map((frame) => cornersOf(frame, 0)[0]);
    const spread = [0, 1, 2].map((axis) => Math.max(...centres.map((c) => c[axis])) - Math.min(...centres.map((c) => c[axis])));
    const length = CAMERA_LENGTH * (Math.hypot(...spread) || 1);
    const step = Math.ceil(frames.length / MOST_CAMERAS);
    this.length = length;
    this.shapes = [{ colour: "#fff", lines: centres.slice(1).map((centre, k) => [centres[k], centre]) }];
    for (const frame of frames.filter((_, k) => k % step === 0)) {
      const corners = cornersOf(frame, length);
      this.shapes.push({ centre: corners[0], colour: colourOfDoubt(frame.doubt), lines: LINES.map(([a, b]) => [corners[a], corners[b]]) });
    }
    for (const shape of this.shapes) {
      shape.path = make("path");
      shape.path.setAttribute("stroke", shape.colour);
      this.drawing.append(shape.path);
    }
    host.append(this.drawing);
  }

  remove() {
    this.drawing.remove();
  }

  /** Draws them as the camera sees them now. */
  draw() {
    const { right, down, forward } = this.camera.axes();
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const focal = this.camera.focal(width, height);
    const seen = (point) => {
      const at = subtract(point, this.camera.position);
      return [dot(right, at), dot(down, at), dot(forward, at)];
    };
    const pixel = ([x, y, z]) => `${((focal * x) / z + width / 2).toFixed(1)} ${((focal * y) / z + height / 2).toFixed(1)}`;
    for (const { path, lines, centre } of this.shapes) {
      const drawn = [];
      // A camera in which the eye is would be nothing but a frame around the picture.
      const isInside = centre && Math.hypot(...subtract(centre, this.camera.position)) < this.length;
      path.style.display = isInside ? "none" : "";
      for (const [one, other] of lines) {
        let [a, b] = [seen(one), seen(other)];
        if (a[2] < b[2]) [a, b] = [b, a];
        if (a[2] <= NEAR) continue;
        // What is behind the eye is cut off.
        if (b[2] < NEAR) b = add(a, subtract(b, a), (a[2] - NEAR) / (a[2] - b[2]));
        drawn.push(`M${pixel(a)}L${pixel(b)}`);
      }
      path.setAttribute("d", drawn.join(""));
    }
  }
}
