/*
 * Given to node with --import: stands between the program and node:fs/promises, writes down each call that
 * makes something durable, and kills the process with SIGKILL before, after or in the middle of one of them;
 * or holds it there while another process works.
 *
 *   CRASH_ROOT   the run's output folder; only calls below it or on it count
 *   CRASH_TRACE  a file to which each call is appended, a line each
 *   CRASH_AT     <before|after|torn|hold> <call>, as the trace names it; `torn` writes half of a text
 *   CRASH_PAUSE  milliseconds to wait before each call, so that others meet what lies between two of them
 *   CRASH_HOLD   for `hold`: a file that is written when the call is reached; it goes on when that is deleted
 */
import { appendFileSync, existsSync, writeFileSync } from "node:fs";
import promises from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { relative } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isMainThread } from "node:worker_threads";

const {
  CRASH_ROOT: root = "",
  CRASH_TRACE: trace,
  CRASH_AT: at,
  CRASH_HOLD: held = "",
  CRASH_PAUSE: pause,
} = process.env;
const [, moment, target] = /^(before|after|torn|hold) (.+)$/.exec(at ?? "") ?? [];
const seen = new Map();

/** What a path is, without what differs from one attempt to the next. */
function kindOf(path) {
  const inside = relative(root, String(path));
  if (inside.startsWith("../../") || inside === "..") {
    return undefined;
  }
  return (inside || ".")
    .replace(/^_infer-batch\/[^/]+/, "control")
    .replace(/(control\/tmp\/[a-z]+(?:-[a-z0-9]+)?)\..+$/, "$1")
    .replace(/^(control\/withdrawn\/)[^/]+/, "$1own")
    .replace(/^((?:control\/parts\/|_rejects\/)?part-\d+)\..+$/, "$1");
}

/** "link part-00002 #1": the same call of the same run whatever else is under way. */
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

async function hold() {
  writeFileSync(held, "");
  while (existsSync(held)) {
    await sleep(5);
  }
}

async function watched(op, path, work, tear) {
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
  if (call === target && moment === "before") {
    await die();
  }
  if (call === target && moment === "hold") {
    await hold();
  }
  if (call === target && moment === "torn") {
    await tear?.();
    await die();
  }
  try {
    return await work();
  } finally {
    if (call === target && moment === "after") {
      await die();
    }
  }
}

async function install() {
  const { link, rename, unlink, mkdir, rm, open } = promises;
  promises.link = (from, to) => watched("link", to, () => link(from, to));
  promises.rename = (from, to) => watched("rename", to, () => rename(from, to));
  promises.unlink = (path) => watched("unlink", path, () => unlink(path));
  promises.mkdir = (path, options) => watched("mkdir", path, () => mkdir(path, options));
  promises.rm = (path, options) => watched("rm", path, () => rm(path, options));

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
    const half = () => writeFile.call(this, data.slice(0, Math.floor(data.length / 2)), options);
    return watched("write", paths.get(this) ?? "/", () => writeFile.call(this, data, options), half);
  };
  syncBuiltinESMExports();
}

if (isMainThread && root !== "") {
  await install();
}
