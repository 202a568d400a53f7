// Reads .spz files of versions 1 to 3 (one gzip stream) into arrays as the renderer's textures hold them. Version 4 is
// compressed with Zstandard, which browsers do not unpack.
//
// Everything stays in the frame of the file, x right, y up, z back, spherical harmonics included: the camera is turned
// into it instead (camera.js).

/** Splats in one row of a texture. */
const ROW = 1024;

/**
 * Fetches and unpacks a scene; `onProgress(received, total)` in bytes, `total` 0 if it is not known.
 * @returns {Promise<Uint8Array>} the uncompressed file
 */
async function fetchSpz(address, onProgress) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`the server answers with ${response.status}`);
  const total = Number(response.headers.get("Content-Length"));
  const reader = response.body.getReader();
  const chunks = [];
  let received = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    chunks.push(part.value);
    received += part.value.byteLength;
    onProgress(received, total);
  }
  const file = new Blob(chunks);
  const [first, second] = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  if (first !== 0x1f || second !== 0x8b) throw new Error("it is no .spz file of version 1 to 3, which begin as gzip does");
  try {
    const unpacked = file.stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(unpacked).arrayBuffer());
  } catch (cause) {
    throw new Error("its compressed data is damaged", { cause });
  }
}

/**
 * What the renderer and the sorter need of an uncompressed file:
 * - `positions`: x, y, z of each splat;
 * - `splats`: two texels of 16 bytes a splat: x, y, z as floats and the bytes r, g, b, opacity; then the quaternion x, y,
 *   z, w in 16 bits each, the three bytes of the scales, and five bytes of nothing;
 * - `harmonics`: `harmonicsTexels` texels a splat with the bytes of the coefficients above degree 0 as in the file.
 *
 * Both textures have whole rows of ROW splats.
 */
function parseSpz(bytes) {
  const data = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < 16 || data.getUint32(0, true) !== 0x5053474e) throw new Error("it is no .spz file");
  const version = data.getUint32(4, true);
  const count = data.getUint32(8, true);
  const [fileDegree, fractionalBits] = [bytes[12], bytes[13]];
  if (version < 1 || version > 3) throw new Error(`version ${version} of .spz is unknown here`);
  if (fileDegree > 4) throw new Error(`spherical harmonics of degree ${fileDegree} are unknown`);

  let end = 16;
  const next = (stride) => bytes.subarray(end, (end += stride * count));
  const harmonicsStride = 3 * ((fileDegree + 1) ** 2 - 1);
  const positionBytes = next(version === 1 ? 6 : 9);
  const [opacities, colours, scales] = [next(1), next(3), next(3)];
  const rotations = next(version < 3 ? 3 : 4);
  const harmonicsBytes = next(harmonicsStride);
  if (count === 0 || end > bytes.length) throw new Error(`it ends before the last of its ${count} splats`);

  const room = Math.ceil(count / ROW) * ROW;
  const positions = new Float32Array(3 * count);
  const splats = new Uint32Array(8 * room);
  const [floats, halves, octets] = [Float32Array, Int16Array, Uint8Array].map((Kind) => new Kind(splats.buffer));
  const unit = 2 ** -fractionalBits;
  const unpackQuaternion = version < 3 ? unpackFirstThree : unpackSmallestThree;
  // Nothing is made anew for a splat: a scene has millions of them.
  for (let i = 0; i < count; i++) {
    for (let at = 3 * i, axis = 0; axis < 3; at++, axis++) {
      // A signed integer of three bytes.
      const place = version === 1 ? halfFloat(data.getUint16(16 + 2 * at, true))
        : (((positionBytes[3 * at] << 8) | (positionBytes[3 * at + 1] << 16) | (positionBytes[3 * at + 2] << 24)) >> 8) * unit;
      positions[at] = place;
      floats[8 * i + axis] = place;
      octets[32 * i + 12 + axis] = colours[at];
      octets[32 * i + 24 + axis] = scales[at];
    }
    octets[32 * i + 15] = opacities[i];
    unpackQuaternion(rotations, i, halves, 16 * i + 8);
  }

  const degree = Math.min(fileDegree, 3);
  const used = 3 * ((degree + 1) ** 2 - 1);
  const harmonicsTexels = Math.ceil(used / 16);
  const harmonics = new Uint8Array(16 * harmonicsTexels * room);
  for (let i = 0; i < count; i++) {
    const [from, to] = [i * harmonicsStride, 16 * harmonicsTexels * i];
    for (let k = 0; k < used; k++) harmonics[to + k] = harmonicsBytes[from + k];
  }
  return { count, degree, positions, splats, harmonics: new Uint32Array(harmonics.buffer), harmonicsTexels };
}

/** A number in IEEE half precision. */
function halfFloat(bits) {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return exponent === 31 ? sign * Infinity : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/**
 * The quaternion of splat `i` in versions 1 and 2: x, y, z in a byte each, w is not negative. Written as x, y, z, w in 16 bits
 * each to `to` from `at` on.
 */
function unpackFirstThree(bytes, i, to, at) {
  let squares = 0;
  for (let k = 0; k < 3; k++) {
    const value = bytes[3 * i + k] / 127.5 - 1;
    squares += value * value;
    to[at + k] = Math.round(32767 * value);
  }
  to[at + 3] = Math.round(32767 * Math.sqrt(Math.max(0, 1 - squares)));
}

/** As `unpackFirstThree`, in version 3: which component is the largest (2 bits), then sign and 9 bits of each of the others. */
function unpackSmallestThree(bytes, i, to, at) {
  let packed = bytes[4 * i] | (bytes[4 * i + 1] << 8) | (bytes[4 * i + 2] << 16) | (bytes[4 * i + 3] << 24);
  const largest = packed >>> 30;
  let squares = 0;
  for (let k = 3; k >= 0; k--) {
    if (k === largest) continue;
    const magnitude = Math.SQRT1_2 * ((packed & 511) / 511);
    to[at + k] = Math.round(packed & 512 ? -32767 * magnitude : 32767 * magnitude);
    squares += magnitude * magnitude;
    packed >>>= 10;
  }
  to[at + largest] = Math.round(32767 * Math.sqrt(Math.max(0, 1 - squares)));
}
