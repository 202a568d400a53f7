// Sends videos in blocks and submits each when it is there. A lost connection costs the blocks that were under way; a reload costs
// nothing but to choose the file again, because what was sent is remembered for as long as the tab is open.

import { dropped, isPicture, pack } from "./archive.js";

/** Bytes of a block. */
const BLOCK = 4 << 20;
/** Bytes of a piece of a block, in which it is sent where the line is slow. */
const PIECE = 256 << 10;
/** Blocks that are under way at a time, so that the line does not idle between two. Two share a line: on a slow one there is one. */
const SIDE_BY_SIDE = 2;
/** Milliseconds that a block may take: one slower than this the server cuts, too. */
const PATIENCE = 600_000;
/** Milliseconds after which the server cuts what comes too slowly. What comes whole before that may come as slowly as it likes. */
const UNMEASURED = 60_000;
/** Seconds between two tries, at most. */
const LONGEST_PAUSE = 30;
/** Where the tab remembers what was sent, by file. Not under "uploads", where older versions of this page did: their pieces had other names. */
const MEMORY = "uploads-2";
/** Whose uploads these are. */
const OWNER = "uploads-of";

const form = document.querySelector("#new-scene");
const chosen = document.querySelector("#chosen");
const start = document.querySelector("#start");
const said = document.querySelector("#said");
const types = form.dataset.types.split(" ");
const largest = Number(form.dataset.largest);

/** What the server has said no to, with its words: to try again as it is would not help. */
class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** What may be better in a moment; if the line was too slow for what was sent, with less at a time. */
class Passing extends Error {
  constructor(message, isSlow = false) {
    super(message);
    this.isSlow = isSlow;
  }
}

// What was sent ----------------------------------------------------------------------------------------------------

const remembered = () => JSON.parse(sessionStorage.getItem(MEMORY) ?? "{}");
/** The same file, as far as a page can know. */
const identity = (file) => `${file.name}|${file.size}|${file.lastModified}`;

/** Remembers an upload, or forgets it. */
function remember(file, upload) {
  const all = remembered();
  if (upload) all[identity(file)] = { ...upload, name: file.name, size: file.size };
  else delete all[identity(file)];
  sessionStorage.setItem(MEMORY, JSON.stringify(all));
}

/** Forgets what somebody else has sent in this tab: its names are not for who is signed in now, and they cannot go on with it. */
function forgetOthers() {
  if (sessionStorage.getItem(OWNER) === form.dataset.user) return;
  sessionStorage.removeItem(MEMORY);
  sessionStorage.setItem(OWNER, form.dataset.user);
}

// Requests ---------------------------------------------------------------------------------------------------------

/** What an answer other than a good one means; `retryAfter` is its header of that name, or null. */
async function failure(status, text, retryAfter) {
  let message = `The server answered with ${status}.`;
  try {
    message = JSON.parse(text).error ?? message;
  } catch {
    // A proxy in between has its own words.
  }
  // A conflict that will have passed by a time that the server names is with something that it is still at.
  const passes = status === 408 || status === 429 || status >= 500 || (status === 409 && retryAfter !== null);
  return passes ? new Passing(message, status === 408) : new Refused(status, message);
}

/** Sends a form and returns the JSON of the answer. */
async function post(address, fields, signal) {
  let answer;
  try {
    answer = await fetch(address, {
      method: "POST", body: new URLSearchParams(fields), headers: { Accept: "application/json" }, redirect: "manual", signal,
    });
  } catch (error) {
    throw signal.aborted ? error : new Passing("The connection is lost.");
  }
  if (answer.type === "opaqueredirect") throw new Refused(401, "You are signed out. Sign in in another tab, then try again here.");
  if (!answer.ok) throw await failure(answer.status, await answer.text(), answer.headers.get("Retry-After"));
  return answer.json();
}

/** PUTs a body, which `fetch` could not do with progress. */
function put(address, body, progress, signal) {
  return new Promise((done, fail) => {
    const request = new XMLHttpRequest();
    const began = performance.now();
    let sent = 0;
    const refused = () => failure(request.status, request.responseText, request.getResponseHeader("Retry-After"));
    const abort = () => request.abort();
    request.open("PUT", address);
    request.timeout = PATIENCE;
    request.upload.onprogress = (event) => { sent = event.loaded; progress(sent); };
    request.onload = async () => (request.status < 300 ? done() : fail(await refused()));
    // A server that cuts us says why, but not every browser hears that while it is still sending.
    request.onerror = () => fail(new Passing("The connection is lost.", sent > 0 && performance.now() - began >= UNMEASURED));
    request.ontimeout = () => fail(new Passing("The connection is lost.", true));
    request.onabort = () => fail(signal.reason);
    request.onloadend = () => signal.removeEventListener("abort", abort);
    signal.addEventListener("abort", abort);
    if (signal.aborted) return fail(signal.reason);
    request.send(body);
  });
}

/** Waits some seconds, or until the browser has a connection again. */
function pause(seconds, signal) {
  return new Promise((done, fail) => {
    const timer = setTimeout(done, 1000 * seconds);
    addEventListener("online", done, { once: true });
    signal.addEventListener("abort", () => { clearTimeout(timer); fail(signal.reason); }, { once: true });
  });
}

/** Does something again and again until it succeeds or is refused, or the signal ends it. */
async function stubborn(action, row, signal = row.signal) {
  for (let seconds = 1; ; seconds = Math.min(2 * seconds, LONGEST_PAUSE)) {
    try {
      return await action();
    } catch (error) {
      if (!(error instanceof Passing)) throw error;
      signal.throwIfAborted();
      row.say(`${error.message.replace(/\.?$/, ".")} Trying again.`);
      await pause(seconds, signal);
    }
  }
}

// One video --------------------------------------------------------------------------------------------------------

/** Why a file is no video that the server takes, or nothing. */
async function problem(file) {
  const type = file.name.split(".").pop().toLowerCase();
  if (!types.includes(type)) return `It is no video by its name. These are taken: ${types.join(", ")}.`;
  if (file.size > largest) return `It is too large: ${file.size.toLocaleString()} of at most ${largest.toLocaleString()} bytes.`;
  let head;
  try {
    head = new Uint8Array(await file.slice(0, 16).arrayBuffer());
  } catch {
    return "It cannot be read.";
  }
  const text = String.fromCharCode(...head);
  // Boxes of MP4 and QuickTime, EBML of Matroska, RIFF of AVI, an archive of pictures.
  const isBox = ["ftyp", "moov", "mdat", "wide", "free", "skip", "pnot"].includes(text.slice(4, 8));
  const isVideo = isBox || text.startsWith("\x1a\x45\xdf\xa3") || (text.startsWith("RIFF") && text.slice(8, 12) === "AVI ")
    || text.startsWith("PK\x03\x04");
  return isVideo ? null : "It is no video, although it is called like one.";
}

/** Sends what is missing of a video. */
async function send(file, row) {
  let upload = remembered()[identity(file)];
  if (!upload) {
    const type = file.name.split(".").pop();
    const { path, blob_name } = await stubborn(() => post(form.dataset.uploads, { file_extension: type }, row.signal), row);
    upload = { path, blob_name, blocks: [], pieces: {}, complete: false };
    remember(file, upload);
  }
  if (upload.complete) return upload;
  const count = Math.ceil(file.size / BLOCK);
  const part = (k) => file.slice(k * BLOCK, (k + 1) * BLOCK);
  // No piece has the name of the whole: that may still come when we have given it up, and would take the place of the piece.
  const id = (k, piece = null) => btoa(String(k).padStart(6, "0") + (piece === null ? "" : `.${piece}`));
  const pieceCount = (k) => Math.ceil(part(k).size / PIECE);
  const missing = [...Array(count).keys()].filter((k) => !upload.blocks.includes(k));
  const under_way = new Map();
  const show = () => {
    const sent = upload.blocks.reduce((sum, k) => sum + part(k).size, 0) + [...under_way.values()].reduce((a, b) => a + b, 0);
    row.progress(Math.min(sent, file.size) / file.size);
  };
  row.say(upload.blocks.length > 0 ? "Going on." : "Sending.");
  show();
  const putPart = (k, piece, bytes, before, signal) => {
    const address = `${upload.path}&comp=block&blockid=${encodeURIComponent(id(k, piece))}`;
    return put(address, bytes, (sent) => { under_way.set(k, before + sent); show(); }, signal);
  };
  let isSlow = false;
  /** Sends a block: whole, or what is missing of its pieces if the line is slow, or was when the first of them came. */
  const sendBlock = async (k, signal) => {
    if (!isSlow && !(k in upload.pieces)) return putPart(k, null, part(k), 0, signal);
    for (let piece = upload.pieces[k] ?? 0; piece < pieceCount(k); piece++) {
      const [start, began] = [piece * PIECE, performance.now()];
      await putPart(k, piece, part(k).slice(start, start + PIECE), start, signal);
      upload.pieces[k] = piece + 1;
      remember(file, upload);
      // The next block goes whole if it would have come before the server measures.
      isSlow = (performance.now() - began) * (BLOCK / PIECE) >= UNMEASURED;
    }
  };
  // `alone` ends what is sent beside the first where there is no room for it, `ended` what is still sent when something has failed.
  const [alone, ended] = [new AbortController(), new AbortController()];
  const first = AbortSignal.any([row.signal, ended.signal]);
  const other = AbortSignal.any([first, alone.signal]);
  const line = async (signal) => {
    for (let k; (k = missing.shift()) !== undefined; ) {
      const attempt = () => sendBlock(k, signal).catch((error) => {
        if (error.isSlow) {
          isSlow = true;
          alone.abort();
        }
        throw error;
      });
      try {
        await stubborn(attempt, row, signal);
      } catch (error) {
        under_way.delete(k);
        missing.unshift(k);
        if (error === alone.signal.reason) return;
        throw error;
      }
      under_way.delete(k);
      upload.blocks.push(k);
      remember(file, upload);
      row.say("Sending.");
      show();
    }
  };
  try {
    await Promise.all([first, ...Array(SIDE_BY_SIDE - 1).fill(other)].map(line));
    // What the first was left when it had ended already.
    await line(first);
  } finally {
    ended.abort();
  }
  const names = (k) => (k in upload.pieces ? [...Array(pieceCount(k)).keys()].map((piece) => id(k, piece)) : [id(k)]);
  const listed = [...Array(count).keys()].flatMap(names).map((name) => `<Latest>${name}</Latest>`);
  const list = `<?xml version="1.0"?><BlockList>${listed.join("")}</BlockList>`;
  await stubborn(() => put(`${upload.path}&comp=blocklist`, list, () => {}, row.signal), row);
  upload.complete = true;
  remember(file, upload);
  return upload;
}

/** Sends a video, from the beginning if what was sent before is gone. */
async function sendOrBeginAnew(file, row) {
  const isNew = !remembered()[identity(file)];
  try {
    return await send(file, row);
  } catch (error) {
    if (!(error instanceof Refused) || isNew) throw error;
    remember(file, null);
    return send(file, row);
  }
}

/** A chosen file, as the page shows it. */
class Row {
  constructor(file) {
    this.file = file;
    this.controller = new AbortController();
    this.state = "chosen";
    this.item = document.createElement("li");
    this.item.className = "upload";
    this.item.dataset.file = file.name;
    const element = (name, fields = {}) => this.item.appendChild(Object.assign(document.createElement(name), fields));
    this.title = element("input", { value: file.name.replace(/\.[^.]*$/, "").trim() || file.name, maxLength: 255, required: true });
    this.title.setAttribute("aria-label", `Title of ${file.name}`);
    element("span", { className: "help", textContent: `${file.name}, ${(file.size / 1e6).toFixed(1)} MB` });
    this.bar = element("progress", { max: 1, value: 0, hidden: true });
    this.bar.setAttribute("aria-label", `Progress of ${file.name}`);
    this.words = element("p", { className: "help" });
    this.words.setAttribute("role", "status");
    this.button = element("button", { type: "button", textContent: "Leave out" });
    this.button.setAttribute("aria-label", `Leave out ${file.name}`);
    this.button.onclick = () => this.leaveOut();
  }

  get signal() {
    return this.controller.signal;
  }

  say(text) {
    if (this.words.textContent !== text) this.words.textContent = text;
  }

  progress(share) {
    this.bar.hidden = false;
    this.bar.value = share;
  }

  fail(text) {
    this.words.className = "problem";
    this.say(text);
  }

  leaveOut() {
    this.state = "left out";
    this.controller.abort(new DOMException("left out", "AbortError"));
    remember(this.file, null);
    this.item.remove();
    ready();
  }

  async sendAndSubmit(options) {
    const upload = await sendOrBeginAnew(this.file, this);
    this.say("It is there. Queueing it.");
    await stubborn(() => post(form.action, { ...options, title: this.title.value, blob_name: upload.blob_name }, this.signal), this);
  }

  /** Sends it and submits it, and says what came of that. */
  async go(options) {
    this.state = "under way";
    this.words.className = "help";
    try {
      try {
        await this.sendAndSubmit(options);
      } catch (error) {
        // What was sent long ago, or as another user, is gone: it is sent once more.
        if (!(error instanceof Refused && error.message.startsWith("Blob not found"))) throw error;
        remember(this.file, null);
        await this.sendAndSubmit(options);
      }
      remember(this.file, null);
      this.state = "queued";
      this.button.remove();
      this.say("Queued.");
    } catch (error) {
      if (this.state === "left out") return;
      this.state = "failed";
      this.fail(error.message);
    }
  }
}

// The page ---------------------------------------------------------------------------------------------------------

const rows = [];
const current = () => rows.filter((row) => row.item.isConnected);

/** Whether something can be started. */
function ready() {
  const waiting = current().filter((row) => ["chosen", "failed"].includes(row.state));
  start.disabled = waiting.length === 0 || current().some((row) => row.state === "under way");
  start.textContent = waiting.some((row) => row.state === "failed") ? "Try again" : "Send and reconstruct";
}

/** Fewest pictures that a model can be made of. */
const FEWEST_PICTURES = 3;

/** The archives of what was chosen: the pictures of a folder are one, and so are those that lie in none. */
async function archives(pictures) {
  const folders = Map.groupBy(pictures, ({ path }) => (path.includes("/") ? path.split("/")[0] : "pictures"));
  const made = [];
  for (const [name, files] of folders) {
    if (files.length < FEWEST_PICTURES) {
      said.textContent = `${name} has ${files.length} pictures: at least ${FEWEST_PICTURES}, from many sides, are needed.`;
      continue;
    }
    try {
      made.push(await pack(`${name}.zip`, files, (done) => { said.textContent = `Reading ${done + 1} of ${files.length} pictures.`; }));
      said.textContent = "";
    } catch (error) {
      said.textContent = error.message;
    }
  }
  return made;
}

/** Takes what was chosen or dropped, each with the path by which its folder has it: videos, and pictures, which become archives. */
async function take(found) {
  const isVideo = (file) => types.includes(file.name.split(".").pop().toLowerCase());
  // What else lies in a folder is of no interest, nor what its system has hidden in it; of a file that was chosen it is said.
  const others = found.filter(({ file, path }) => !isPicture(file) && (isVideo(file) || !path.includes("/")));
  const packed = await archives(found.filter(({ file, path }) => isPicture(file) && !/(^|\/)\./.test(path)));
  for (const file of [...others.map(({ file }) => file), ...packed]) {
    if (current().some((row) => identity(row.file) === identity(file))) continue;
    const row = new Row(file);
    const wrong = await problem(file);
    if (wrong) {
      row.state = "refused";
      row.title.remove();
      row.fail(wrong);
    }
    rows.push(row);
    chosen.append(row.item);
  }
  showInterrupted();
  ready();
}

/** What was begun in this tab and is not chosen now. */
function showInterrupted() {
  const here = new Set(current().map((row) => identity(row.file)));
  const items = Object.entries(remembered()).filter(([key]) => !here.has(key)).map(([, upload]) => {
    const percent = Math.floor((100 * Math.min(upload.blocks.length * BLOCK, upload.size)) / upload.size);
    const text = `${upload.name} was interrupted at ${percent} %. Choose the file again, and it goes on from there.`;
    return Object.assign(document.createElement("li"), { className: "news", textContent: text });
  });
  document.querySelector("#interrupted").replaceChildren(...items);
}

/** One video after the other, so that the first is reconstructed while the second is sent. */
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const options = Object.fromEntries(new FormData(form));
  const waiting = current().filter((row) => ["chosen", "failed"].includes(row.state));
  if (waiting.length > Number(form.dataset.room)) said.textContent = `Only ${form.dataset.room} more can wait in your queue. The others are refused until there is room.`;
  for (const row of waiting) {
    if (row.state === "left out") continue;
    const went = row.go(options);
    ready();
    await went;
  }
  ready();
  const left = current().filter((row) => row.state !== "queued");
  if (left.length === 0) return location.assign(form.action);
  said.textContent = `${left.length} of ${current().length} were not queued.`;
});

for (const input of document.querySelectorAll("#videos, #folder")) {
  input.addEventListener("change", () => {
    take([...input.files].map((file) => ({ path: file.webkitRelativePath || file.name, file })));
    // So that the same file can be chosen again.
    input.value = "";
  });
}

const drop = document.querySelector("#drop");
// A file that misses the field would be opened instead of the page.
addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) drop.classList.remove("over"); });
addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  dropped(event.dataTransfer).then(take, () => { said.textContent = "What was dropped cannot be read."; });
});

addEventListener("beforeunload", (event) => {
  if (current().some((row) => row.state === "under way")) event.preventDefault();
});

forgetOthers();
form.hidden = false;
showInterrupted();
