// What takes time happens in a worker, so that the page stays alive meanwhile: fetching and unpacking a scene, and sorting
// its splats by depth.

/**
 * Runs in the worker. Told the address of a scene, it answers with `{ received, total }` while it comes, then with `{ scene }`,
 * what `parseSpz` makes of it, or with `{ error }`. Told views from then on, it answers each with `{ order }`: the numbers of
 * the visible splats, farthest first.
 */
function serveScene(near) {
  const BUCKETS = 1 << 16;
  let positions, depths, bits, keys;

  async function load(address) {
    const file = await fetchSpz(address, (received, total) => postMessage({ received, total }));
    const scene = parseSpz(file);
    positions = scene.positions;
    depths = new Float32Array(scene.count);
    // Positive floats are ordered as their bits are, read as integers. Buckets of equal width in these are nearly of
    // equal ratio in depth: fine near the camera however far the farthest splat is.
    bits = new Uint32Array(depths.buffer);
    keys = new Uint16Array(scene.count);
    delete scene.positions;
    postMessage({ scene }, [scene.splats.buffer, scene.harmonics.buffer]);
  }

  function sort({ forward, centre }) {
    const shift = forward[0] * centre[0] + forward[1] * centre[1] + forward[2] * centre[2];
    let [lowest, highest] = [0xffffffff, 0];
    for (let i = 0, at = 0; i < depths.length; i++, at += 3) {
      depths[i] = forward[0] * positions[at] + forward[1] * positions[at + 1] + forward[2] * positions[at + 2] - shift;
      if (depths[i] > near) {
        if (bits[i] < lowest) lowest = bits[i];
        if (bits[i] > highest) highest = bits[i];
      }
    }
    const scale = (BUCKETS - 1) / Math.max(1, highest - lowest);
    const places = new Uint32Array(BUCKETS + 1);
    for (let i = 0; i < depths.length; i++) {
      if (depths[i] > near) {
        keys[i] = (highest - bits[i]) * scale;
        places[keys[i] + 1]++;
      }
    }
    for (let key = 0; key < BUCKETS; key++) places[key + 1] += places[key];
    const order = new Uint32Array(places[BUCKETS]);
    // Of equals the last is the farthest, as in the engine.
    for (let i = depths.length - 1; i >= 0; i--) {
      if (depths[i] > near) order[places[keys[i]]++] = i;
    }
    postMessage({ order }, [order.buffer]);
  }

  onmessage = ({ data }) => {
    if (data.address) load(data.address).catch(({ message }) => postMessage({ error: message }));
    else sort(data);
  };
}

/** A worker that runs `serveScene`. The page is one file, so its code is the text of the functions. */
function startWorker(near) {
  const parts = [fetchSpz, parseSpz, halfFloat, unpackFirstThree, unpackSmallestThree, serveScene];
  const code = `const ROW = ${ROW};\n${parts.join("\n")}\nserveScene(${near});`;
  const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  const worker = new Worker(address);
  URL.revokeObjectURL(address);
  return worker;
}
