// Packs pictures into one zip file without copying them: the archive is a blob of headers and of the files themselves, stored as they
// are (PKWARE's APPNOTE 6.3). The same pictures make the same archive, so that a broken upload goes on when they are chosen again.

/** Names of pictures that are packed end so. */
const PICTURES = /\.(jpe?g|png|webp)$/i;
/** Bytes that are read at a time. */
const PIECE = 4 << 20;
/** Bytes of an archive, at most: more needs another form. */
const LARGEST = 0xffffffff;
/** The first day that an archive can name: when the pictures were changed is of no interest. */
const DATE = (1 << 5) | 1;
/** Names are UTF-8. */
const UTF8 = 0x800;
const VERSION = 20;

/** Remainders of the polynomial of CRC-32, by byte. */
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
  return byte;
});

async function checksum(file) {
  let crc = ~0;
  for (let at = 0; at < file.size; at += PIECE) {
    const piece = new Uint8Array(await file.slice(at, at + PIECE).arrayBuffer());
    for (let k = 0; k < piece.length; k++) crc = (crc >>> 8) ^ TABLE[(crc ^ piece[k]) & 0xff];
  }
  return ~crc >>> 0;
}

/** Numbers of two and four bytes, the lowest byte first: `[bytes, value]` each. */
function record(fields) {
  const view = new DataView(new ArrayBuffer(fields.reduce((sum, [bytes]) => sum + bytes, 0)));
  let at = 0;
  for (const [bytes, value] of fields) {
    if (bytes === 2) view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += bytes;
  }
  return view.buffer;
}

export const isPicture = (file) => PICTURES.test(file.name);

/**
 * A file `name` with the pictures `files`, each `{ path, file }`. `progress` is told how many have been read.
 *
 * @throws {Error} in words for people, if they are too large together or one cannot be read.
 */
export async function pack(name, files, progress) {
  const sorted = [...files].sort((a, b) => (a.path < b.path ? -1 : 1));
  const parts = [], table = [];
  let offset = 0;
  for (const [done, { path, file }] of sorted.entries()) {
    progress(done);
    let crc;
    try {
      crc = await checksum(file);
    } catch {
      throw new Error(`${path} cannot be read.`);
    }
    const bytes = new TextEncoder().encode(path);
    const both = [[2, VERSION], [2, UTF8], [2, 0], [2, 0], [2, DATE], [4, crc], [4, file.size], [4, file.size], [2, bytes.length], [2, 0]];
    parts.push(record([[4, 0x04034b50], ...both]), bytes, file);
    table.push(record([[4, 0x02014b50], [2, VERSION], ...both, [2, 0], [2, 0], [2, 0], [4, 0], [4, offset]]), bytes);
    offset += 30 + bytes.length + file.size;
  }
  const size = table.reduce((sum, part) => sum + part.byteLength, 0);
  if (offset + size + 22 > LARGEST) throw new Error("The pictures have more than 4 GiB together: choose fewer, or smaller ones.");
  const count = sorted.length;
  const end = record([[4, 0x06054b50], [2, 0], [2, 0], [2, count], [2, count], [4, size], [4, offset], [2, 0]]);
  return new File([...parts, ...table, end], name, { lastModified: Math.max(...sorted.map(({ file }) => file.lastModified)) });
}

/** The files in what was dropped, with the paths by which folders have them. Must be called before the event ends. */
export async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (entries.length === 0) return [...transfer.files].map((file) => ({ path: file.name, file }));
  const all = async (entry) => {
    if (entry.isFile) return [{ path: entry.fullPath.slice(1), file: await new Promise((done, fail) => entry.file(done, fail)) }];
    const reader = entry.createReader(), inside = [];
    // A reader gives some at a time, and none at the end.
    for (let some; (some = await new Promise((done, fail) => reader.readEntries(done, fail))).length > 0; ) inside.push(...some);
    return (await Promise.all(inside.map(all))).flat();
  };
  return (await Promise.all(entries.map(all))).flat();
}
