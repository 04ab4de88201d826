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

/** V8's compiled code of the program's files, cached on disk for later processes. */
export interface CodeCache {
  /** Compiles a file. A cached file has the same text: the cache's folder is named by the bundle's digest. */
  compile(name: string, text: string, filename: string): Script;
  /** Writes code that is not in the cache, or of which more functions were compiled this time. */
  save(): void;
}

/** The code of each file, by name, as `Script` takes it. */
type CachedData = ReadonlyMap<string, Uint8Array>;

/** A CRC-32 of the rest of the cache file, and the length of its index. */
const headerBytes = 8;
/** Folders that are kept, for programs, Node versions and processors: those that were written last. */
const maxFolders = 3;
const writableByOthers = 0o022;
const staleMs = 60_000;
/** The factor by which code must have grown to be written: it differs a little each time. */
const growthFactor = 1.1;

/**
 * Opens a code cache.
 * @param file the cache file, `<cache>/<version>/<name>`; undefined caches nothing. Neighbouring folders belong to other
 *   versions, and the oldest are removed
 * @param checkGrowth whether `save` compares the size of the code with the cache, which takes milliseconds for each
 *   megabyte; otherwise it writes only when a file is new
 */
export function openCodeCache(file: string | undefined, { checkGrowth }: { readonly checkGrowth: boolean }): CodeCache {
  const cached = file === undefined ? new Map<string, Uint8Array>() : readCache(file);
  const scripts = new Map<string, Script>();
  let isNew = false;
  /** Whether V8 rejected the first file: then it rejects all. A later file may be rejected for other V8 flags. */
  let isRefused = false;
  return {
    compile(name, text, filename) {
      const cachedData = cached.get(name);
      const script = new Script(text, { filename, ...(cachedData === undefined ? {} : { cachedData }) });
      isRefused ||= scripts.size === 0 && script.cachedDataRejected === true;
      isNew ||= cachedData === undefined || isRefused;
      scripts.set(name, script);
      return script;
    },
    save() {
      if (file !== undefined && (isNew || checkGrowth)) {
        const own = [...scripts].map(([name, script]) => [name, script.createCachedData()] as const);
        if (isRefused || own.some(([name, { length }]) => length > sizeOf(cached, name) * growthFactor)) {
          // Another process or an idle thread may have compiled less: the larger code of each file is kept.
          updateCache(file, (kept) => {
            const better = own.filter(([name, { length }]) => isRefused || length > sizeOf(kept, name));
            return new Map([...kept, ...better]);
          });
        }
      }
    },
  };
}

function sizeOf(compiled: CachedData, name: string): number {
  return compiled.get(name)?.length ?? 0;
}

/**
 * Reads a cache file; empty when it is missing or damaged, or when another user may have written it. V8 checks versions
 * and flags, but not the code itself, and would run any code that the file has.
 */
function readCache(file: string): CachedData {
  const bytes = readPrivateFile(file);
  if (bytes === undefined || bytes.length <= headerBytes || bytes.readUInt32LE(0) !== crc32(bytes.subarray(4))) {
    return new Map();
  }
  let from = headerBytes + bytes.readUInt32LE(4);
  const lengths = JSON.parse(bytes.toString("utf8", headerBytes, from)) as Lengths;
  return new Map(lengths.map(([name, length]) => [name, bytes.subarray(from, (from += length))]));
}

type Lengths = readonly (readonly [name: string, length: number])[];

/** Errors are ignored, because the cache only saves time. */
function updateCache(file: string, change: (kept: CachedData) => CachedData): void {
  const temporary = `${file}.${process.pid}-${process.hrtime.bigint()}`; // threads share a process id
  const folder = dirname(file);
  const cache = dirname(folder);
  try {
    mkdirSync(dirname(cache), { recursive: true });
    for (const path of [cache, folder]) {
      mkdirSync(path, { recursive: true, mode: 0o700 });
    }
    removeStale(folder);
    const descriptor = openSync(temporary, "wx", 0o600);
    try {
      if (isPrivate(descriptor)) {
        writeFileSync(descriptor, serialize(change(readCache(file))));
        renameSync(temporary, file);
      }
    } finally {
      closeSync(descriptor);
      rmSync(temporary, { force: true });
    }
    removeOldest(cache, basename(folder));
  } catch {
    // The disk is full or not writable: the next process compiles again.
  }
}

function serialize(compiled: CachedData): Buffer {
  const lengths: Lengths = [...compiled].map(([name, { length }]) => [name, length]);
  const index = Buffer.from(JSON.stringify(lengths));
  const bytes = Buffer.concat([Buffer.alloc(headerBytes), index, ...compiled.values()]);
  bytes.writeUInt32LE(index.length, 4);
  bytes.writeUInt32LE(crc32(bytes.subarray(4)), 0);
  return bytes;
}

/** Reads a file that only this user can write; undefined for others. */
function readPrivateFile(file: string): Buffer | undefined {
  let opened: number;
  try {
    opened = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch {
    return undefined; // nothing was kept yet, or it is not for this user: the code is compiled anew
  }
  try {
    return isPrivate(opened) ? readFileSync(opened) : undefined;
  } catch {
    return undefined; // the same
  } finally {
    closeSync(opened);
  }
}

function isPrivate(opened: number): boolean {
  const { uid, mode } = fstatSync(opened);
  return uid === process.geteuid?.() && (mode & writableByOthers) === 0;
}

/** Temporary files of processes that were killed while they wrote. */
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
  for (const { name } of dated.toSorted((a, b) => b.ms - a.ms).slice(maxFolders - 1)) {
    rmSync(join(folder, name), { recursive: true, force: true });
  }
}
