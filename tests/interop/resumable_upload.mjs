// Sends a file with tus-js-client to an address that takes uploads which go on after a break: resumable_upload.mjs ADDRESS FILE
// PROTOCOL [STOP_AT], where PROTOCOL is ietf-draft-03, ietf-draft-05 or tus-v1. Where ADDRESS is one at which tus begins uploads (its
// path has /tus/) it begins one; else it asks first how much has come, and prints that as `offset N`. In the end it prints
// `complete N`. With STOP_AT it kills itself once it has handed so many bytes to its connection. Exits with 77 and says so if the package is not installed.

import { createReadStream } from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import { basename, join } from 'node:path';

const [address, file, protocol, stopAt] = process.argv.slice(2);
const require = createRequire(process.env.LIBRECONSTRUCT_NODE_MODULES
    ? join(process.env.LIBRECONSTRUCT_NODE_MODULES, 'x.js') : import.meta.url);
if (stopAt !== undefined) {
    // The client tells its progress ten times a second only, and a file may be sent whole meanwhile.
    let sent = 0;
    const { write } = http.ClientRequest.prototype;
    http.ClientRequest.prototype.write = function (chunk, ...rest) {
        const more = write.call(this, chunk, ...rest);
        sent += chunk.length;
        if (sent >= Number(stopAt)) process.kill(process.pid, 'SIGKILL');
        return more;
    };
}
let tus;
try {
    tus = require('tus-js-client');
} catch (error) {
    if (!/Cannot find/.test(error.message)) throw error;
    console.log('the npm package tus-js-client');
    process.exit(77);
}

const begins = address.includes('/tus/');
new tus.Upload(createReadStream(file), {
    [begins ? 'endpoint' : 'uploadUrl']: address,
    protocol,
    metadata: { filename: basename(file) },
    onAfterResponse(request, answer) {
        if (request.getMethod() === 'HEAD') console.log(`offset ${answer.getHeader('Upload-Offset')}`);
    },
    onSuccess({ lastResponse }) {
        console.log(`complete ${lastResponse.getHeader('Upload-Offset')}`);
    },
    onError(error) {
        console.log(`error ${error.message}`);
        process.exit(1);
    },
}).start();
