/**
 * The module loader of the built program: the files of the bundle require each other through it. It gives V8 the code
 * that was compiled the last time, because reading and compiling a megabyte of JavaScript took a third of a second of a
 * small job (docs/decisions/startup.md).
 */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { isAbsolute, join } from "node:path";
import { fileURLToPath } from "node:url";
import { getEnvironmentData, isMainThread, setEnvironmentData } from "node:worker_threads";
import { cacheFolder } from "../base/cache-folder.js";
import { type CodeCache, openCodeCache } from "./code-cache.js";
import { setFlagsAtStart } from "./v8-flags.js";

/** A digest of all files of the bundle; scripts/bundle.mjs defines it. */
declare const bundleDigest: string;

interface LoadedModule {
  readonly exports: unknown;
}

type Wrapper = (
  exports: unknown,
  require: (id: string) => unknown,
  module: LoadedModule,
  filename: string,
  folder: string,
) => void;

const folder = import.meta.dirname;
const nodeRequire = createRequire(import.meta.url);
const loaded = new Map<string, LoadedModule>();
let cache: CodeCache | undefined;

/**
 * Modules of Node that nearly each command needs. Loaded before V8 has other flags than those that their cached code was
 * made with, they take 5 ms, and afterwards 20.
 */
const builtins = ["child_process", "crypto", "fs/promises", "perf_hooks", "timers/promises"];

/** Loads the first file of a process or thread, or another entry file, and returns its exports. */
export function load(entry: string): unknown {
  if (cache === undefined) {
    if (isMainThread) {
      for (const name of builtins) {
        nodeRequire(`node:${name}`);
      }
      const [command = "none"] = /^[a-z]+$/.exec(process.argv[2] ?? "") ?? [];
      setFlagsAtStart(command);
      setEnvironmentData("command", command);
    }
    // A thread starts before its task is known, and compiles little until it has one.
    const opened = openCodeCache(cacheFile(entry, getEnvironmentData("command") as string), {
      checkGrowth: !isMainThread,
    });
    cache = opened;
    process.once("exit", (code) => {
      if (code === 0) {
        opened.save();
      }
    });
  }
  return loadFile(entry, cache);
}

/** One file for each command and one for threads, which compile different code; the threads of `serve` have other flags. */
function cacheFile(entry: string, command: string): string | undefined {
  const { env, version, arch } = process;
  if (env["NODE_DISABLE_COMPILE_CACHE"] !== undefined || env["NODE_V8_COVERAGE"] !== undefined) {
    return undefined;
  }
  const user = isMainThread ? command : command === "serve" ? "serve-thread" : "thread";
  const kinds = cacheFolderOrUndefined();
  // Not below the working directory: an archive that was unpacked there must not bring code along.
  return kinds !== undefined && isAbsolute(kinds)
    ? join(kinds, `${bundleDigest}-${version}-${arch}`, `${user}-${entry}`)
    : undefined;
}

function cacheFolderOrUndefined(): string | undefined {
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
  const filename = join(folder, name);
  const text = readFileSync(filename, "latin1"); // scripts/bundle.mjs writes ASCII, and a function around it
  // Cached code keeps the name that stack traces show: it may have been compiled in another installation.
  const run = from.compile(name, text, `infer-batch/dist/bundle/${name}`).runInThisContext() as Wrapper;
  const module: LoadedModule = { exports: {} };
  loaded.set(name, module);
  try {
    run(module.exports, (id) => requireModule(id, from), module, filename, folder);
  } catch (error) {
    loaded.delete(name); // requiring it again throws the same error
    throw error;
  }
  return module.exports;
}

/** Requires a file of the bundle, a file by URL (worker threads), or a module of Node or of a package. */
function requireModule(id: string, from: CodeCache): unknown {
  if (id.startsWith("./")) {
    return loadFile(id.slice(2), from);
  }
  return nodeRequire(id.startsWith("file:") ? fileURLToPath(id) : id);
}
