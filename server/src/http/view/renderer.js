// Draws sorted splats with WebGL 2: a quad for each, blended back to front.
//
// Many quads make one instance: what draws (a driver, or a processor in its place) has work for each instance, whatever its size.
//
// Image formation is that of the engine's rasteriser (core/src/raster): EWA projection with x/z and y/z clamped to 1.3 times
// the field of view in the Jacobian, 0.3 px² added to the 2D covariance, alpha at most 0.999 and dropped below 1/255.

/** Splats nearer to the camera plane than this are dropped. */
const NEAR = 0.01;
/** Splats of an instance. */
const BATCH = 128;
/** The two triangles of a quad with four corners. */
const TRIANGLES = [0, 1, 2, 2, 1, 3];

const VERTEX_SHADER = `#version 300 es
precision highp float;
precision highp int;
precision highp usampler2D;
uniform usampler2D splats;
uniform usampler2D harmonics;
uniform usampler2D order;  // numbers of splats, the farthest first
uniform int count;         // of them
uniform mat3 rotation;  // world to camera: x right, y down, z forward
uniform vec3 centre;    // of the camera, in the world
uniform float focal;    // pixels
uniform vec2 size;      // of the picture, pixels
out vec2 deviation;     // from the centre of the splat, in standard deviations
flat out vec4 colour;   // rgb and opacity

const float ALPHA_MIN = 1.0 / 255.0;
const float DILATION = 0.3;

// Four bytes as 0 to 1.
vec4 bytesOf(uint word) {
  return vec4((uvec4(word) >> uvec4(0, 8, 16, 24)) & 255u) / 255.0;
}

mat3 matrixOf(vec4 q) {
  vec3 d = 2.0 * q.xyz;
  float xx = d.x * q.x, yy = d.y * q.y, zz = d.z * q.z, xy = d.x * q.y, xz = d.x * q.z, yz = d.y * q.z;
  vec3 w = d * q.w;
  return mat3(1.0 - yy - zz, xy + w.z, xz - w.y,
              xy - w.z, 1.0 - xx - zz, yz + w.x,
              xz + w.y, yz - w.x, 1.0 - xx - yy);
}

#if DEGREE > 0
uint words[12];

// Coefficients of a basis function (from 1 on) for r, g, b: one byte each, 128 is zero.
vec3 coefficient(int number) {
  vec3 value;
  for (int channel = 0; channel < 3; channel++) {
    int at = 3 * (number - 1) + channel;
    value[channel] = float((words[at >> 2] >> (8 * (at & 3))) & 255u);
  }
  return (value - 128.0) / 128.0;
}

// What the real spherical harmonics above degree 0 add to the colour in the direction d.
vec3 harmonicsIn(vec3 d, int i) {
  for (int k = 0; k < TEXELS; k++) {
    uvec4 texel = texelFetch(harmonics, ivec2((i & ${ROW - 1}) * TEXELS + k, i / ${ROW}), 0);
    for (int j = 0; j < 4; j++) words[4 * k + j] = texel[j];
  }
  float x = d.x, y = d.y, z = d.z;
  vec3 sum = 0.4886025119 * (z * coefficient(2) - y * coefficient(1) - x * coefficient(3));
#if DEGREE > 1
  float xx = x * x, yy = y * y, zz = z * z;
  sum += 1.0925484306 * (x * y * coefficient(4) - y * z * coefficient(5) - x * z * coefficient(7))
       + 0.3153915653 * (2.0 * zz - xx - yy) * coefficient(6)
       + 0.5462742153 * (xx - yy) * coefficient(8);
#endif
#if DEGREE > 2
  sum += -0.5900435899 * (y * (3.0 * xx - yy) * coefficient(9) + x * (xx - 3.0 * yy) * coefficient(15))
       + 2.8906114426 * (x * y * z * coefficient(10) + 0.5 * z * (xx - yy) * coefficient(14))
       - 0.4570457995 * (4.0 * zz - xx - yy) * (y * coefficient(11) + x * coefficient(13))
       + 0.3731763326 * z * (2.0 * zz - 3.0 * (xx + yy)) * coefficient(12);
#endif
  return sum;
}
#endif

void main() {
  gl_Position = vec4(0.0, 0.0, 2.0, 1.0); // out of sight, unless the splat turns out to be visible
  int place = gl_InstanceID * ${BATCH} + (gl_VertexID >> 2);
  if (place >= count) return;
  int i = int(texelFetch(order, ivec2(place & ${ROW - 1}, place / ${ROW}), 0).r);
  ivec2 at = ivec2((i & ${ROW - 1}) * 2, i / ${ROW});
  uvec4 first = texelFetch(splats, at, 0);
  vec3 mean = uintBitsToFloat(first.xyz);
  vec4 base = bytesOf(first.w);
  vec3 p = rotation * (mean - centre);
  if (p.z <= ${NEAR} || base.a < ALPHA_MIN) return;

  // Columns: the axes of the ellipsoid in the frame of the camera. Rows of the half: what the picture sees of them.
  uvec4 second = texelFetch(splats, at + ivec2(1, 0), 0);
  vec4 q = normalize(vec4(unpackSnorm2x16(second.x), unpackSnorm2x16(second.y)));
  vec3 scale = exp(bytesOf(second.z).xyz * (255.0 / 16.0) - 10.0);
  mat3 axes = transpose(rotation * matrixOf(q));
  vec2 limit = 1.3 * 0.5 * size / focal;
  vec2 slope = clamp(p.xy / p.z, -limit, limit);
  vec3 halfX = focal / p.z * scale * (axes[0] - slope.x * axes[2]);
  vec3 halfY = focal / p.z * scale * (axes[1] - slope.y * axes[2]);
  vec3 product = cross(halfX, halfY);
  float xx = dot(halfX, halfX), xy = dot(halfX, halfY), yy = dot(halfY, halfY);
  float determinant = dot(product, product) + DILATION * (xx + yy + DILATION);
  xx += DILATION;
  yy += DILATION;

  // How many standard deviations away alpha falls below its least value, and whether that is in the picture.
  float reach = sqrt(2.0 * log(base.a / ALPHA_MIN)) + 0.001;
  vec2 pixel = focal * p.xy / p.z + 0.5 * size;
  vec2 extent = reach * sqrt(vec2(xx, yy));
  if (any(lessThan(pixel + extent, vec2(0.0))) || any(greaterThan(pixel - extent, size))) return;

  // The quad lies along the axes of the ellipse: eigenvectors of the covariance.
  float halfDifference = 0.5 * (xx - yy);
  float spread = length(vec2(halfDifference, xy));
  float longer = 0.5 * (xx + yy) + spread;
  vec2 axis = halfDifference > 0.0 ? vec2(halfDifference + spread, xy) : vec2(xy, spread - halfDifference);
  axis = spread > 1e-6 * longer ? normalize(axis) : vec2(1.0, 0.0);
  vec2 corner = reach * (2.0 * vec2(gl_VertexID & 1, (gl_VertexID >> 1) & 1) - 1.0);
  pixel += sqrt(longer) * corner.x * axis + sqrt(determinant / longer) * corner.y * vec2(-axis.y, axis.x);
  gl_Position = vec4(2.0 * pixel / size - 1.0, 0.0, 1.0) * vec4(1.0, -1.0, 1.0, 1.0);
  deviation = corner;

  vec3 rgb = 0.5 + 0.2820947918 / 0.15 * (base.rgb - 0.5);
#if DEGREE > 0
  rgb += harmonicsIn(normalize(mean - centre), i);
#endif
  colour = vec4(max(rgb, 0.0), base.a);
}`;

const FRAGMENT_SHADER = `#version 300 es
precision highp float;
in vec2 deviation;
flat in vec4 colour;
out vec4 fragment;

void main() {
  float alpha = min(0.999, colour.a * exp(-0.5 * dot(deviation, deviation)));
  if (alpha < 1.0 / 255.0) discard;
  fragment = vec4(alpha * colour.rgb, alpha);
}`;

class Renderer {
  /** Fails if the browser has no WebGL 2. */
  constructor(canvas) {
    const options = { alpha: false, antialias: false, depth: false, powerPreference: "high-performance" };
    const gl = canvas.getContext("webgl2", options);
    if (!gl) throw new Error("this browser offers no WebGL 2");
    this.gl = gl;
    this.count = 0;
    this.textures = [];

    const corners = new Uint16Array(BATCH * TRIANGLES.length);
    for (let quad = 0; quad < BATCH; quad++) {
      corners.set(TRIANGLES.map((corner) => 4 * quad + corner), TRIANGLES.length * quad);
    }
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, corners, gl.STATIC_DRAW);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA); // colours come multiplied by alpha
    gl.clearColor(0, 0, 0, 1);
  }

  /** Hands a scene (of `parseSpz`) to the graphics card, in the place of the one before. */
  load(scene) {
    const gl = this.gl;
    const rows = Math.ceil(scene.count / ROW);
    const most = gl.getParameter(gl.MAX_TEXTURE_SIZE);
    if (rows > most || ROW * Math.max(2, scene.harmonicsTexels) > most) {
      throw new Error(`${scene.count} splats are too many for this graphics card`);
    }
    for (const texture of this.textures.splice(0)) gl.deleteTexture(texture);
    if (this.program) gl.deleteProgram(this.program);
    this.count = 0;
    this.program = this.#link(`#define DEGREE ${scene.degree}\n#define TEXELS ${scene.harmonicsTexels}\n`);
    gl.useProgram(this.program);
    this.uniforms = {};
    for (const name of ["splats", "harmonics", "order", "count", "rotation", "centre", "focal", "size"]) {
      this.uniforms[name] = gl.getUniformLocation(this.program, name);
    }
    this.#texture(0, 2 * ROW, rows, scene.splats, this.uniforms.splats);
    if (scene.degree > 0) this.#texture(1, scene.harmonicsTexels * ROW, rows, scene.harmonics, this.uniforms.harmonics);

    this.#select(2, this.uniforms.order);
    this.rows = Math.max(1, rows);
    gl.texStorage2D(gl.TEXTURE_2D, 1, gl.R32UI, ROW, this.rows);
    // Whole rows are written at a time.
    this.order = new Uint32Array(ROW * this.rows);
  }

  /** From now on these splats are drawn, in this order: farthest first. */
  setOrder(order) {
    const gl = this.gl;
    this.order.set(order);
    gl.activeTexture(gl.TEXTURE2);
    gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, ROW, this.rows, gl.RED_INTEGER, gl.UNSIGNED_INT, this.order);
    this.count = order.length;
  }

  /** Draws what `camera` sees. */
  draw(camera) {
    const gl = this.gl;
    const { width, height } = gl.canvas;
    const { right, down, forward } = camera.axes();
    gl.viewport(0, 0, width, height);
    gl.clear(gl.COLOR_BUFFER_BIT);
    // Column by column.
    const rotation = [0, 1, 2].flatMap((k) => [right[k], down[k], forward[k]]);
    gl.uniformMatrix3fv(this.uniforms.rotation, false, rotation);
    gl.uniform3fv(this.uniforms.centre, camera.position);
    gl.uniform1f(this.uniforms.focal, camera.focal(width, height));
    gl.uniform2f(this.uniforms.size, width, height);
    gl.uniform1i(this.uniforms.count, this.count);
    const instances = Math.ceil(this.count / BATCH);
    if (instances > 0) {
      gl.drawElementsInstanced(gl.TRIANGLES, BATCH * TRIANGLES.length, gl.UNSIGNED_SHORT, 0, instances);
    }
  }

  /** A new texture, without its texels, is in this unit and under this name from now on. */
  #select(unit, uniform) {
    const gl = this.gl;
    gl.activeTexture(gl.TEXTURE0 + unit);
    const texture = gl.createTexture();
    this.textures.push(texture);
    gl.bindTexture(gl.TEXTURE_2D, texture);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
    gl.uniform1i(uniform, unit);
  }

  #texture(unit, width, height, texels, uniform) {
    const gl = this.gl;
    this.#select(unit, uniform);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA32UI, width, height, 0, gl.RGBA_INTEGER, gl.UNSIGNED_INT, texels);
  }

  #link(defines) {
    const gl = this.gl;
    const program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX_SHADER], [gl.FRAGMENT_SHADER, FRAGMENT_SHADER]]) {
      const shader = gl.createShader(kind);
      // The version must stay the first line.
      gl.shaderSource(shader, source.replace("\n", "\n" + defines));
      gl.compileShader(shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS) && !gl.isContextLost()) {
        throw new Error(`a shader does not compile: ${gl.getShaderInfoLog(shader)}`);
      }
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost()) {
      throw new Error(`the shaders do not link: ${gl.getProgramInfoLog(program)}`);
    }
    return program;
  }
}
