import { createHash } from "node:crypto";
import { type BigIntStats, constants, createReadStream } from "node:fs";
import { access, realpath, stat } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from "node:path";
import { glob, isDynamicPattern } from "tinyglobby";
import { errnoOf, JobError } from "../errors.js";
import type { ListedShard } from "../plan/compare.js";
import { partitionsOf } from "../plan/partitions.js";
import { pinDifference, restoreHint } from "../plan/pins.js";
import { foreseePath, readdirForeseeing } from "./foresee.js";
import { type OutputFolder, outputHint } from "./output-folder.js";
import type { Listing, OpenShard, Source } from "./port.js";

const statConcurrency = 32;
/** More of them make reading hardly cheaper. */
const filesTogether = 64;
const digestBytes = 1024 * 1024;

export interface DiskSourceOptions {
  /** The spec's folder, which relative URIs start from. */
  readonly folder: string;
  /** The job's own output folder, where it has one: what lies there is no input. */
  readonly output: OutputFolder | undefined;
}

/** Shards on a local or mounted disk. URIs are as the spec wrote them: absolute, or relative to `folder`. */
export function diskSource({ folder, output }: DiskSourceOptions): Source {
  return {
    ahead: {
      files: 1,
      together: filesTogether,
      windowBytes: Number.POSITIVE_INFINITY,
      bytes: Number.POSITIVE_INFINITY,
    },
    async list(patterns) {
      const uris = new Set<string>();
      const realOutput = output === undefined ? undefined : await foreseePath(output.folder);
      const part = output === undefined || realOutput === undefined ? undefined : join(realOutput, output.part);
      for (const pattern of patterns) {
        for (const uri of await expand(pattern, folder, part)) {
          uris.add(uri);
        }
      }
      return await statAll([...uris].toSorted(), folder, realOutput);
    },
    async exists(uri) {
      return (await statOrUndefined(resolve(folder, uri))) !== undefined;
    },
    async open(shard) {
      // The file that a link leads to now is the one that is read, whatever the link leads to later.
      const opened = new DiskShard(shard, await realOr(resolve(folder, shard.uri)));
      await opened.check();
      return opened;
    },
    async [Symbol.asyncDispose]() {
      // Nothing is held.
    },
  };
}

/** The path without links; the path itself where nothing is. */
async function realOr(path: string): Promise<string> {
  return await realpath(path).catch(() => path);
}

/** The URIs that a pattern matches. `part`: must not be one of them, though it is not there yet. */
async function expand(pattern: string, folder: string, part: string | undefined): Promise<string[]> {
  const absolute = resolve(folder, pattern);
  // A file whose own name holds a wildcard character is that file.
  if (!isDynamicPattern(pattern) || (await statOrUndefined(absolute))?.isFile() === true) {
    return [normalize(pattern, absolute, folder)];
  }
  // Only the pattern is a pattern: the folder above it may hold brackets in its name.
  const found = await glob(pattern, {
    cwd: folder,
    absolute: true,
    onlyFiles: true,
    dot: false,
    expandDirectories: false,
    ...(part === undefined ? {} : { fs: { readdir: readdirForeseeing(part) } }),
  });
  for (const path of found) {
    if (part !== undefined && basename(path) === basename(part) && (await foreseePath(path)) === part) {
      throw new JobError("SPEC_INVALID", `${pattern} matches what is written to output.parquet.path: ${path}`, {
        hint: outputHint,
      });
    }
  }
  return found.map((path) => normalize(pattern, resolve(path), folder));
}

/** One spelling for a file however it was matched, absolute where the spec's was. */
function normalize(pattern: string, absolute: string, folder: string): string {
  return isAbsolute(pattern) ? absolute : relative(folder, absolute).split(sep).join("/");
}

async function statAll(uris: readonly string[], folder: string, output: string | undefined): Promise<Listing> {
  const shards: ListedShard[] = [];
  const absent: string[] = [];
  const folders = new Set<string>();
  const isRepeat = repeats();
  for (let start = 0; start < uris.length; start += statConcurrency) {
    const group = uris.slice(start, start + statConcurrency);
    const found = await Promise.all(group.map((uri) => statShard(uri, resolve(folder, uri))));
    for (const [index, one] of found.entries()) {
      if (one === undefined) {
        absent.push(group[index] ?? "");
      } else if (!isRepeat(one.file, one.shard.uri)) {
        refuseOutput(one.real, output);
        shards.push(one.shard);
        folders.add(dirname(one.real));
      }
    }
  }
  return { shards, absent, folders: [...folders] };
}

/** Tells of each file whether it came before: under another name, and with the same rows there. */
function repeats(): (file: string, uri: string) => boolean {
  const seen = new Map<string, ReadonlyMap<string, string | null>[]>();
  return (file, uri) => {
    const partitions = partitionsOf(uri);
    const before = seen.get(file) ?? [];
    const repeated = before.some((others) => agree(partitions, others));
    if (!repeated) {
      seen.set(file, [...before, partitions]);
    }
    return repeated;
  };
}

/** Folders that give a column different values make different rows of one file. */
function agree(one: ReadonlyMap<string, string | null>, other: ReadonlyMap<string, string | null>): boolean {
  return [...one].every(([name, value]) => !other.has(name) || other.get(name) === value);
}

/** A run must not score what it, or the run before it, wrote. */
function refuseOutput(path: string, output: string | undefined): void {
  if (output !== undefined && path.startsWith(`${output}${sep}`)) {
    throw new JobError("SPEC_INVALID", `${path} lies in output.parquet.path`, {
      hint: outputHint,
    });
  }
}

interface Found {
  readonly shard: ListedShard;
  /** The path without links. */
  readonly real: string;
  /** The same for all names of a file. */
  readonly file: string;
}

async function statShard(uri: string, path: string): Promise<Found | undefined> {
  const found = await statOrUndefined(path);
  if (found === undefined) {
    return undefined;
  }
  if (!found.isFile()) {
    throw new JobError("FILE_MISSING", `${path} is a folder or no plain file`, {
      hint: "for the files of a folder write folder/*.parquet",
    });
  }
  await assertReadable(path);
  const shard = { uri, sizeBytes: Number(found.size), fingerprint: fingerprintOf(found) };
  const real = await realOr(path);
  // Not every file system gives each file a number of its own; those that have hard links do.
  return { shard, real, file: found.nlink > 1n ? `${found.dev}:${found.ino}` : real };
}

async function assertReadable(path: string): Promise<void> {
  try {
    await access(path, constants.R_OK);
  } catch (cause) {
    throw new JobError("PERMISSION", `${path} is not readable by this user`, {
      hint: "grant read permission",
      cause,
    });
  }
}

function fingerprintOf(stats: BigIntStats): string {
  return `mtime:${stats.mtimeNs}`;
}

/** What `stat` says of a path where no file can be. */
const nothingThere: ReadonlySet<string> = new Set(["ENOENT", "ENOTDIR", "ENAMETOOLONG", "ELOOP"]);

async function statOrUndefined(path: string): Promise<BigIntStats | undefined> {
  try {
    return await stat(path, { bigint: true });
  } catch (error) {
    const errno = errnoOf(error);
    if (errno !== undefined && nothingThere.has(errno)) {
      return undefined;
    }
    if (errno === "EACCES" || errno === "EPERM") {
      throw new JobError("PERMISSION", `looking at ${path}: permission denied`, {
        hint: "grant read permission",
        cause: error,
      });
    }
    throw new JobError("DISK", `looking at ${path}: ${errno ?? String(error)}`, { cause: error });
  }
}

/** A class: shards are many, and functions of each one's own would be most of what it takes. */
class DiskShard implements OpenShard {
  readonly path: string;
  private readonly shard: ListedShard;

  constructor(shard: ListedShard, path: string) {
    this.path = path;
    this.shard = shard;
  }

  get name(): string {
    return this.path;
  }

  async check(): Promise<void> {
    const { shard, path } = this;
    const now = await statOrUndefined(path);
    if (now === undefined) {
      throw new JobError("INPUT_CHANGED", `reading ${path}: it is gone`, {
        hint: "put back what was planned, with its modification time (cp -p), and run again; committed spans are kept",
      });
    }
    const found = { uri: path, sizeBytes: Number(now.size), fingerprint: fingerprintOf(now) };
    const difference = pinDifference(shard, found);
    if (difference !== undefined) {
      throw new JobError("INPUT_CHANGED", `reading ${path}: ${difference}`, {
        hint: `${restoreHint({ ...shard, uri: path }, found)}; committed spans are kept`,
      });
    }
  }

  async digest(signal: AbortSignal): Promise<string> {
    return await digestOf(this.path, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Nothing was copied.
  }
}

async function digestOf(path: string, signal: AbortSignal): Promise<string> {
  const hash = createHash("sha256");
  try {
    for await (const bytes of createReadStream(path, { highWaterMark: digestBytes })) {
      signal.throwIfAborted();
      hash.update(bytes as Uint8Array);
    }
  } catch (error) {
    const errno = errnoOf(error);
    throw errno === undefined ? error : new JobError("DISK", `reading ${path}: ${errno}`, { cause: error });
  }
  return hash.digest("hex");
}
