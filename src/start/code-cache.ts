import {
  closeSync,
  constants,
  fstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { Script } from "node:vm";
import { crc32 } from "node:zlib";

/** What V8 made of files of the program, kept for the next process. */
export interface CodeCache {
  /** @param text of a file of that name, the same as when it was kept. */
  compile(name: string, text: string, filename: string): Script;
  /** Writes what is worth it: files that are new, or of which more was compiled this time. */
  keep(): void;
}

/** By file, for `Script`. */
type Compiled = ReadonlyMap<string, Uint8Array>;

/** Of the rest of the file, and of its index: a CRC-32 and a length. */
const headBytes = 8;
/** Of programs, versions of Node and processors: folders that were written to last. */
const keptKinds = 3;
const ofOthers = 0o022;
const staleMs = 60_000;
/** What is compiled differs a little each time. */
const grownBy = 1.1;

/**
 * @param file of `<cache>/<kind>/`; undefined: nothing is kept. Folders beside its own are those of other versions; the
 * oldest may go.
 * @param grows whether it takes looking, some milliseconds a megabyte, to know that more was compiled than is kept: of
 * others, that there is a new file tells
 */
export function openCodeCache(file: string | undefined, { grows }: { readonly grows: boolean }): CodeCache {
  const known = file === undefined ? new Map<string, Uint8Array>() : readCompiled(file);
  const scripts = new Map<string, Script>();
  let isNew = false;
  /** Whether V8 refuses the first file: it is for all of them then. Others are refused while other flags are set. */
  let isRefused = false;
  return {
    compile(name, text, filename) {
      const cachedData = known.get(name);
      const script = new Script(text, { filename, ...(cachedData === undefined ? {} : { cachedData }) });
      isRefused ||= scripts.size === 0 && script.cachedDataRejected === true;
      isNew ||= cachedData === undefined || isRefused;
      scripts.set(name, script);
      return script;
    },
    keep() {
      if (file !== undefined && (isNew || grows)) {
        const own = [...scripts].map(([name, script]) => [name, script.createCachedData()] as const);
        if (isRefused || own.some(([name, { length }]) => length > sizeIn(known, name) * grownBy)) {
          // The most of what several made: another process, or an idle thread, may have compiled less.
          writeCompiled(file, (kept) => {
            const better = own.filter(([name, { length }]) => isRefused || length > sizeIn(kept, name));
            return new Map([...kept, ...better]);
          });
        }
      }
    },
  };
}

function sizeIn(compiled: Compiled, name: string): number {
  return compiled.get(name)?.length ?? 0;
}

/**
 * Nothing when it is not there, not whole, or somebody else may have written it. V8 checks versions and flags, but not
 * each byte: it would carry out whatever stands here.
 */
function readCompiled(file: string): Compiled {
  const bytes = readOwn(file);
  if (bytes === undefined || bytes.length <= headBytes || bytes.readUInt32LE(0) !== crc32(bytes.subarray(4))) {
    return new Map();
  }
  let from = headBytes + bytes.readUInt32LE(4);
  const lengths = JSON.parse(bytes.toString("utf8", headBytes, from)) as Lengths;
  return new Map(lengths.map(([name, length]) => [name, bytes.subarray(from, (from += length))]));
}

type Lengths = readonly (readonly [name: string, length: number])[];

/** Where it can be written, and read again: it is only faster to have it. */
function writeCompiled(file: string, change: (kept: Compiled) => Compiled): void {
  const own = `${file}.${process.pid}-${process.hrtime.bigint()}`; // threads share a number
  const folder = dirname(file);
  const cache = dirname(folder);
  unlessRefused(() => {
    mkdirSync(dirname(cache), { recursive: true });
    for (const path of [cache, folder]) {
      mkdirSync(path, { recursive: true, mode: 0o700 });
    }
    removeStale(folder);
    const opened = openSync(own, "wx", 0o600);
    try {
      if (isOwn(opened)) {
        writeFileSync(opened, bytesOf(change(readCompiled(file))));
        renameSync(own, file);
      }
    } finally {
      closeSync(opened);
      rmSync(own, { force: true });
    }
    removeOldest(cache, basename(folder));
  });
}

function bytesOf(compiled: Compiled): Buffer {
  const lengths: Lengths = [...compiled].map(([name, { length }]) => [name, length]);
  const index = Buffer.from(JSON.stringify(lengths));
  const bytes = Buffer.concat([Buffer.alloc(headBytes), index, ...compiled.values()]);
  bytes.writeUInt32LE(index.length, 4);
  bytes.writeUInt32LE(crc32(bytes.subarray(4)), 0);
  return bytes;
}

function unlessRefused(act: () => void): void {
  try {
    act();
  } catch {
    // a disk that is full, or may not be written to: the next process compiles anew
  }
}

/** undefined where it is not, or is not this user's alone. */
function readOwn(file: string): Buffer | undefined {
  let opened: number;
  try {
    opened = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch {
    return undefined; // nothing was kept yet, or it is not for this user: the code is compiled anew
  }
  try {
    return isOwn(opened) ? readFileSync(opened) : undefined;
  } catch {
    return undefined; // the same
  } finally {
    closeSync(opened);
  }
}

function isOwn(opened: number): boolean {
  const { uid, mode } = fstatSync(opened);
  return uid === process.geteuid?.() && (mode & ofOthers) === 0;
}

/** What a process that was killed while it wrote has left. */
function removeStale(folder: string): void {
  for (const name of readdirSync(folder).filter((one) => /\.\d+-\d+$/.test(one))) {
    const path = join(folder, name);
    if (Date.now() - statSync(path).mtimeMs > staleMs) {
      rmSync(path, { force: true });
    }
  }
}

function removeOldest(folder: string, spared: string): void {
  const others = readdirSync(folder).filter((name) => name !== spared);
  const dated = others.map((name) => ({ name, ms: statSync(join(folder, name)).mtimeMs }));
  for (const { name } of dated.toSorted((a, b) => b.ms - a.ms).slice(keptKinds - 1)) {
    rmSync(join(folder, name), { recursive: true, force: true });
  }
}
