import {
  closeSync,
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
  /** Writes what is new, with all functions that were compiled since. */
  keep(): void;
}

/** Of the rest of the file, and of its index: a CRC-32 and a length. */
const headBytes = 8;
/** Of programs, versions of Node and processors: what a fourth made is not kept. */
const keptKinds = 3;
const ofOthers = 0o022;

/** @param file undefined: nothing is kept. Folders beside its own are those of other versions; the oldest may go. */
export function openCodeCache(file: string | undefined): CodeCache {
  const known = file === undefined ? new Map<string, Uint8Array>() : readCompiled(file);
  const scripts = new Map<string, Script>();
  let isNew = false;
  return {
    compile(name, text, filename) {
      const cachedData = known.get(name);
      const script = new Script(text, { filename, ...(cachedData === undefined ? {} : { cachedData }) });
      isNew ||= cachedData === undefined || script.cachedDataRejected === true;
      scripts.set(name, script);
      return script;
    },
    keep() {
      if (file !== undefined && isNew) {
        const compiled = [...scripts].map(([name, script]) => [name, script.createCachedData()] as const);
        writeCompiled(file, new Map([...known, ...compiled]));
        isNew = false;
      }
    },
  };
}

/**
 * Nothing when it is not there, not whole, or somebody else may have written it. V8 checks versions and flags, but not
 * each byte: it would carry out whatever stands here.
 */
function readCompiled(file: string): ReadonlyMap<string, Uint8Array> {
  const bytes = readOwn(file);
  const compiled = new Map<string, Uint8Array>();
  if (bytes !== undefined && bytes.length > headBytes && bytes.readUInt32LE(0) === crc32(bytes.subarray(4))) {
    let from = headBytes + bytes.readUInt32LE(4);
    for (const [name, length] of JSON.parse(bytes.toString("utf8", headBytes, from)) as [string, number][]) {
      compiled.set(name, bytes.subarray(from, (from += length)));
    }
  }
  return compiled;
}

/** Where it can be written: it is only faster to have it. */
function writeCompiled(file: string, compiled: ReadonlyMap<string, Uint8Array>): void {
  const own = `${file}.${process.pid}-${process.hrtime.bigint()}`; // threads share a number
  try {
    const index = Buffer.from(JSON.stringify([...compiled].map(([name, { length }]) => [name, length])));
    const bytes = Buffer.concat([Buffer.alloc(headBytes), index, ...compiled.values()]);
    bytes.writeUInt32LE(index.length, 4);
    bytes.writeUInt32LE(crc32(bytes.subarray(4)), 0);
    const folder = dirname(file);
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    writeFileSync(own, bytes, { flag: "wx", mode: 0o600 });
    renameSync(own, file);
    removeOldest(dirname(folder), basename(folder));
  } catch {
    unlessRefused(() => {
      rmSync(own, { force: true });
    });
  }
}

function unlessRefused(act: () => void): void {
  try {
    act();
  } catch {
    // it was never there
  }
}

/** undefined where it is not, or is not this user's alone. */
function readOwn(file: string): Buffer | undefined {
  let opened: number;
  try {
    opened = openSync(file, "r");
  } catch {
    return undefined;
  }
  try {
    const { uid, mode } = fstatSync(opened);
    return uid === process.geteuid?.() && (mode & ofOthers) === 0 ? readFileSync(opened) : undefined;
  } catch {
    return undefined;
  } finally {
    closeSync(opened);
  }
}

function removeOldest(folder: string, spared: string): void {
  const others = readdirSync(folder).filter((name) => name !== spared);
  const dated = others.map((name) => ({ name, ms: statSync(join(folder, name)).mtimeMs }));
  for (const { name } of dated.toSorted((a, b) => b.ms - a.ms).slice(keptKinds - 1)) {
    rmSync(join(folder, name), { recursive: true, force: true });
  }
}
