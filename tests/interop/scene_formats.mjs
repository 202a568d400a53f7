// Converts scene files with splat-transform: scene_formats.mjs FOLDER FORMAT. Exits with 77 and says so if a package is not
// installed or this Node.js is too old.
//
// glb: FOLDER/ours.ply becomes transform.glb (splat-transform does not read such files).
// sog: FOLDER/ours.sog becomes transform_sog.ply, and ours.ply transform.sog.

import { execFileSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

const [folder, format] = process.argv.slice(2);
const require = createRequire(process.env.LIBRECONSTRUCT_NODE_MODULES
    ? join(process.env.LIBRECONSTRUCT_NODE_MODULES, 'x.js') : import.meta.url);
let cli;
if (Number(process.versions.node.split('.')[0]) < 18) {
    console.log(`Node.js 18 or newer (this is ${process.versions.node})`);
    process.exit(77);
}
try {
    cli = join(dirname(require.resolve('@playcanvas/splat-transform')), '..', 'bin', 'cli.mjs');
} catch (error) {
    if (!/Cannot find/.test(error.message)) throw error;
    console.log('the npm package @playcanvas/splat-transform');
    process.exit(77);
}

const conversions = {
    glb: [['ours.ply', 'transform.glb']],
    sog: [['ours.sog', 'transform_sog.ply'], ['ours.ply', 'transform.sog']],
};
for (const [from, to] of conversions[format]) {
    execFileSync(process.execPath, [cli, '-q', '-g', 'cpu', join(folder, from), join(folder, to)], { stdio: 'pipe' });
}
