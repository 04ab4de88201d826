/**
 * How the built program is loaded: each file of the bundle asks for the others here. V8 is given what it made of them
 * the last time, since reading and compiling a megabyte of JavaScript took a third of a second of a small job
 * (docs/decisions/startup.md).
 */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { isAbsolute, join } from "node:path";
import { fileURLToPath } from "node:url";
import { isMainThread } from "node:worker_threads";
import { cacheFolder } from "../util/cache-folder.js";
import { type CodeCache, openCodeCache } from "./code-cache.js";

/** Of all files of the bundle; scripts/bundle.mjs puts it here. */
declare const bundleDigest: string;

interface Loaded {
  readonly exports: unknown;
}

type Wrapper = (
  exports: unknown,
  require: (id: string) => unknown,
  module: Loaded,
  filename: string,
  folder: string,
) => void;

const folder = import.meta.dirname;
const native = createRequire(import.meta.url);
const loaded = new Map<string, Loaded>();
let cache: CodeCache | undefined;

/** What the file that a process or a thread begins with exports, or another one that it hosts. */
export function load(entry: string): unknown {
  if (cache === undefined) {
    // A thread starts before it is known what for, and one that has nothing to do compiles little.
    const opened = openCodeCache(cacheFile(entry), { grows: !isMainThread });
    cache = opened;
    process.once("exit", (code) => {
      if (code === 0) {
        opened.keep();
      }
    });
  }
  return loadFile(entry, cache);
}

/** One for each kind of thread and command: they load different files, and of these compile different functions. */
function cacheFile(entry: string): string | undefined {
  const { env, version, arch, argv } = process;
  if (env["NODE_DISABLE_COMPILE_CACHE"] !== undefined || env["NODE_V8_COVERAGE"] !== undefined) {
    return undefined;
  }
  const [command = "none"] = isMainThread ? (/^[a-z]+$/.exec(argv[2] ?? "") ?? []) : ["thread"];
  const kinds = folderOrNone();
  // Not below the working directory: whoever unpacks an archive there has not asked for its code.
  return kinds !== undefined && isAbsolute(kinds)
    ? join(kinds, `${bundleDigest}-${version}-${arch}`, `${command}-${entry}`)
    : undefined;
}

/** A user may have no home, and none is needed for this. */
function folderOrNone(): string | undefined {
  try {
    return cacheFolder("code");
  } catch {
    return undefined; // nothing is kept: the code is compiled anew
  }
}

function loadFile(name: string, from: CodeCache): unknown {
  const before = loaded.get(name);
  if (before !== undefined) {
    return before.exports;
  }
  const module: Loaded = { exports: {} };
  loaded.set(name, module);
  const filename = join(folder, name);
  const text = readFileSync(filename, "latin1"); // scripts/bundle.mjs writes ASCII
  const wrapped = `(function(exports,require,module,__filename,__dirname){${text}\n})`;
  const run = from.compile(name, wrapped, filename).runInThisContext() as Wrapper;
  try {
    run(module.exports, (id) => request(id, from), module, filename, folder);
  } catch (error) {
    loaded.delete(name); // whoever asks again is told the same
    throw error;
  }
  return module.exports;
}

/** Threads are told of files by URL; whatever else is asked for is Node's own, or a package's. */
function request(id: string, from: CodeCache): unknown {
  if (id.startsWith("./")) {
    return loadFile(id.slice(2), from);
  }
  return native(id.startsWith("file:") ? fileURLToPath(id) : id);
}
