/*
 * Given to node with --import: stands between the program and node:fs/promises, writes down each call that
 * makes something durable, and kills the process with SIGKILL before, after or in the middle of one of them;
 * or holds it there while another process works.
 *
 *   CRASH_ROOT   the run's output folder; only calls below it or on it count
 *   CRASH_TRACE  a file to which each call is appended, a line each
 *   CRASH_AT     <before|after|torn|hold> <call>, as the trace names it; `torn` writes half of a text. Several are
 *                separated by |; `* #7` is the seventh of all calls
 *   CRASH_PAUSE  milliseconds to wait before each call, so that others meet what lies between two of them
 *   CRASH_HOLD   for `hold`: a file that is written when the call is reached; it goes on when that is deleted
 *   CRASH_COPIES a folder that takes a copy of the output folder at each moment, which is what a process leaves that is
 *                killed there; the process goes on
 */
import {
  appendFileSync,
  copyFileSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import promises from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { join, relative } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isMainThread } from "node:worker_threads";

const {
  CRASH_ROOT: root = "",
  CRASH_TRACE: trace,
  CRASH_AT: at,
  CRASH_HOLD: held = "",
  CRASH_COPIES: copies,
  CRASH_PAUSE: pause,
} = process.env;
const moments = new Set(at?.split("|"));
const seen = new Map();
let calls = 0;

/** What a path is, without what differs from one attempt to the next. */
function kindOf(path) {
  const inside = relative(root, String(path));
  if (inside.startsWith("../../") || inside === "..") {
    return undefined;
  }
  return (inside || ".")
    .replace(/^_infer-batch\/[^/]+/, "control")
    .replace(/(control\/tmp\/[^./]+)\..+$/, "$1")
    .replace(/^(control\/withdrawn\/)[^/]+/, "$1own")
    .replace(/^((?:control\/parts\/|_rejects\/)?part-\d+)\..+$/, "$1");
}

/** "link part-00002 #1": the same call of the same run, also while other calls are under way. */
function nameCall(op, path) {
  const kind = kindOf(path);
  if (kind === undefined) {
    return undefined;
  }
  const call = `${op} ${kind}`;
  const count = (seen.get(call) ?? 0) + 1;
  seen.set(call, count);
  return `${call} #${count}`;
}

async function die() {
  process.kill(process.pid, "SIGKILL");
  await new Promise(() => setInterval(() => {}, 1000)); // nothing runs on, should the signal take its time
}

/** Copies the output folder. Returns where, or undefined where none is asked for. */
function copyAt(kind, call) {
  if (copies === undefined || call.startsWith("sync ")) {
    return undefined;
  }
  const to = join(copies, encodeURIComponent(`${kind} ${call}`));
  mkdirSync(to);
  if (existsSync(root)) {
    copyFolder(root, join(to, "left"), new Map());
  }
  return join(to, "left");
}

/** With times and hard links, in one go: only a call that was made before can still be under way meanwhile. */
function copyFolder(from, to, links) {
  mkdirSync(to);
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    const [source, copy] = [join(from, entry.name), join(to, entry.name)];
    if (entry.isDirectory()) {
      copyFolder(source, copy, links);
    } else {
      copyFile(source, copy, links);
    }
  }
}

function copyFile(source, copy, links) {
  const { ino, atime, mtime } = lstatSync(source, { throwIfNoEntry: false }) ?? {};
  if (links.has(ino)) {
    linkSync(links.get(ino), copy);
  } else if (ino !== undefined) {
    try {
      copyFileSync(source, copy);
    } catch (error) {
      if (error.code !== "ENOENT") {
        throw error;
      }
      return; // a call that is under way has removed it
    }
    utimesSync(copy, atime, mtime);
    links.set(ino, copy);
  }
}

async function hold() {
  writeFileSync(held, "");
  while (existsSync(held)) {
    await sleep(5);
  }
}

async function watched(op, path, work, { tear, half } = {}) {
  const call = nameCall(op, path);
  if (call === undefined) {
    return await work();
  }
  if (trace !== undefined) {
    appendFileSync(trace, `${call}\n`);
  }
  if (pause !== undefined) {
    await sleep(Number(pause));
  }
  copyAt("before", call);
  if (half !== undefined) {
    const copy = copyAt("torn", call);
    if (copy !== undefined) {
      writeFileSync(join(copy, relative(root, String(path))), half);
    }
  }
  calls += 1;
  const nth = `* #${calls}`;
  const isAt = (moment) => moments.has(`${moment} ${call}`) || moments.has(`${moment} ${nth}`);
  if (isAt("before")) {
    await die();
  }
  if (isAt("hold")) {
    await hold();
  }
  if (isAt("torn")) {
    await tear?.();
    await die();
  }
  try {
    return await work();
  } finally {
    if (isAt("after")) {
      await die();
    }
  }
}

async function install() {
  const { link, rename, unlink, mkdir, rm, open, writeFile: writeWhole } = promises;
  promises.link = (from, to) => watched("link", to, () => link(from, to));
  promises.rename = (from, to) => watched("rename", to, () => rename(from, to));
  promises.unlink = (path) => watched("unlink", path, () => unlink(path));
  promises.mkdir = (path, options) => watched("mkdir", path, () => mkdir(path, options));
  promises.rm = (path, options) => watched("rm", path, () => rm(path, options));

  promises.writeFile = (path, data, options) => {
    const half = data.slice(0, Math.floor(data.length / 2));
    const tear = () => writeWhole(path, half, options);
    return watched("write", path, () => writeWhole(path, data, options), { tear, half });
  };

  const paths = new WeakMap();
  promises.open = async (path, flags, mode) => {
    const work = () => open(path, flags, mode);
    const file = flags === "r" || flags === undefined ? await work() : await watched("create", path, work);
    paths.set(file, path);
    return file;
  };
  const probe = await open(fileURLToPath(import.meta.url));
  const prototype = Object.getPrototypeOf(probe);
  await probe.close();
  const { sync, datasync, writeFile } = prototype;
  prototype.sync = function () {
    return watched("sync", paths.get(this) ?? "/", () => sync.call(this));
  };
  prototype.datasync = function () {
    return watched("sync", paths.get(this) ?? "/", () => datasync.call(this));
  };
  prototype.writeFile = function (data, options) {
    const half = data.slice(0, Math.floor(data.length / 2));
    const tear = () => writeFile.call(this, half, options);
    return watched("write", paths.get(this) ?? "/", () => writeFile.call(this, data, options), { tear, half });
  };
  syncBuiltinESMExports();
}

if (isMainThread && root !== "") {
  await install();
}
