// Reads our scene files with the reference implementation of .spz (its WebAssembly build) and with splat-transform, and
// writes what they make of them: spz_roundtrip.mjs FOLDER COUNT SH, where SH is the number of values a splat has in ours.f32
// beyond f_dc. Exits with 77 and says so if a package is not installed or this Node.js is too old.
//
// FOLDER holds ours.ply, ours_v{2,3,4}.spz in the frame of the format, and ours.f32:
// positions, log scales, rotations (x y z w), opacity logits, f_dc and the other coefficients as f32.
// Written: reference_v{2,3,4}.f32 (our files decoded into the frame of the scene), reference_v{2,3,4}.spz (ours.f32
// encoded), transform_ply.ply, transform_spz.ply, transform.compressed.ply, transform.spz.

import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

const folder = process.argv[2];
const require = createRequire(process.env.LIBRECONSTRUCT_NODE_MODULES
    ? join(process.env.LIBRECONSTRUCT_NODE_MODULES, 'x.js') : import.meta.url);
let spz, cli;
if (Number(process.versions.node.split('.')[0]) < 18) {
    console.log(`Node.js 18 or newer (this is ${process.versions.node})`);
    process.exit(77);
}
try {
    spz = await (await import(require.resolve('@adobe/spz'))).default();
    cli = join(dirname(require.resolve('@playcanvas/splat-transform')), '..', 'bin', 'cli.mjs');
} catch (error) {
    if (!/Cannot find/.test(error.message)) throw error;
    console.log('a package of tests/interop/package.json');
    process.exit(77);
}

const COUNT = Number(process.argv[3]);
const SH = Number(process.argv[4]);
const sizes = { positions: 3, scales: 3, rotations: 4, alphas: 1, colors: 3, sh: SH };
const { RDF } = spz.CoordinateSystem;
const floats = new Float32Array(new Uint8Array(readFileSync(join(folder, 'ours.f32'))).buffer);
const cloud = { numPoints: COUNT, shDegree: Math.sqrt(SH / 3 + 1) - 1, antialiased: true, extensions: [] };
let at = 0;
for (const [name, size] of Object.entries(sizes)) {
    cloud[name] = floats.slice(at, at += COUNT * size);
}
for (const version of [2, 3, 4]) {
    const bytes = new Uint8Array(readFileSync(join(folder, `ours_v${version}.spz`)));
    const decoded = spz.loadSpzFromBuffer(bytes, { to: RDF });
    if (decoded.numPoints !== COUNT || !decoded.antialiased) {
        throw new Error(`version ${version}: ${decoded.numPoints} points instead of ${COUNT}`);
    }
    const out = Object.keys(sizes).map((name) => Buffer.from(new Float32Array(decoded[name]).buffer));
    writeFileSync(join(folder, `reference_v${version}.f32`), Buffer.concat(out));
    const encoded = spz.saveSpzToBuffer(cloud, { version, from: RDF, sh1Bits: 5, shRestBits: 4 });
    writeFileSync(join(folder, `reference_v${version}.spz`), encoded);
}
for (const [from, to] of [
    ['ours.ply', 'transform_ply.ply'],
    ['ours_v3.spz', 'transform_spz.ply'],
    ['ours.ply', 'transform.compressed.ply'],
    ['ours.ply', 'transform.spz'],
]) {
    execFileSync(process.execPath, [cli, '-q', join(folder, from), join(folder, to)], { stdio: 'pipe' });
}
