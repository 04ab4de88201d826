import { type BigIntStats, constants } from "node:fs";
import { access, realpath, stat } from "node:fs/promises";
import { dirname, isAbsolute, join, posix, relative, resolve, sep } from "node:path";
import { JobError } from "../../util/errors.js";
import type { ListedShard } from "../../plan/compare.js";
import { partitionsOf } from "../../plan/partitions.js";
import { diskFault, isDenied, isNothingThere } from "./disk-fault.js";
import { plannedPath } from "./planned-path.js";
import { compileGlob, hasWildcards, splitStaticFolder, withoutFoldersOf } from "../glob.js";
import { type OutputFolder, outputHint } from "../output-folder.js";
import { joinListings } from "../join-listings.js";
import type { Listing } from "../port.js";
import { Vanished, walk, type Walked, type WalkFileSystem } from "./walk.js";

const statConcurrency = 32;
/** How often folders are walked when something vanishes meanwhile. */
const walksAtMost = 4;

interface Place {
  /** The spec's folder. */
  readonly folder: string;
  readonly output: OutputFolder | undefined;
  readonly fileSystem: WalkFileSystem;
}

/** Lists again when something vanished meanwhile: what was moved may not have been seen at either place. */
export async function listUntilSettled(patterns: readonly string[], place: Place): Promise<Listing> {
  for (let left = walksAtMost; ; left -= 1) {
    try {
      return await list(patterns, place);
    } catch (error) {
      if (!(error instanceof Vanished)) {
        throw error;
      }
      if (left === 1) {
        throw new JobError(
          "INPUT_NOT_READY",
          `listing input.path: files and folders vanish meanwhile, such as ${error.path}`,
          {
            hint: "run the same command again when nothing moves or removes them; with input.ready, a run starts only when a marker is there that is written last",
            cause: error,
          },
        );
      }
    }
  }
}

async function list(patterns: readonly string[], { folder, output, fileSystem }: Place): Promise<Listing> {
  const realOutput = output === undefined ? undefined : await plannedPath(output.folder);
  const planned = output === undefined || realOutput === undefined ? undefined : join(realOutput, output.part);
  const plain = new Set<string>();
  const matched = new Set<string>();
  const parts: Partial<Listing>[] = [];
  for (const pattern of patterns) {
    if (await isPlain(pattern, folder)) {
      plain.add(normalize(pattern, resolve(folder, pattern), folder));
      continue;
    }
    const walked = await expand(pattern, { folder, planned, fileSystem });
    for (const path of walked.files) {
      matched.add(normalize(pattern, path, folder));
    }
    parts.push({
      unmatched: walked.files.length === 0 ? [pattern] : [],
      missing: walked.missing === undefined ? [] : [{ pattern, ...walked.missing }],
      unread: walked.unread.map((one) => ({ pattern, ...one })),
      tableRoots: walked.tableRoots.map((root) => ({ pattern, folder: root })),
    });
  }
  const uris = [...new Set([...plain, ...matched])].toSorted();
  const found = await statAll(uris, folder, realOutput);
  const gone = found.absent.find((uri) => !plain.has(uri));
  if (gone !== undefined) {
    throw new Vanished(resolve(folder, gone));
  }
  const listing = joinListings([found, ...parts]);
  return { ...listing, unread: withoutFoldersOf(listing.unread, () => uris.map((uri) => resolve(folder, uri))) };
}

/** A path without wildcards, or with some in the name of a file that is there. */
async function isPlain(pattern: string, folder: string): Promise<boolean> {
  return !hasWildcards(pattern) || (await statOrUndefined(resolve(folder, pattern)))?.isFile() === true;
}

/** What a pattern matches. `planned`: must not be among it, though it is not there yet. */
async function expand(
  pattern: string,
  { folder, planned, fileSystem }: Pick<Place, "folder" | "fileSystem"> & { planned: string | undefined },
): Promise<Walked> {
  // Only the pattern is a pattern: the folder above it may hold brackets in its name.
  const { folder: named, rest } = splitStaticFolder(posix.normalize(pattern).replace(/\/$/, ""));
  if (goesUp(rest) || goesUp(splitStaticFolder(pattern).rest)) {
    throw new JobError("SPEC_INVALID", `${pattern} goes up (..) after a wildcard`, {
      hint: "write each folder as a pattern of its own: input.path takes a list",
    });
  }
  const walked = await walk({ glob: compileGlob(rest), base: resolve(folder, named), planned, fileSystem });
  if (walked.planned !== undefined) {
    throw new JobError("SPEC_INVALID", `${pattern} matches what is written to output.parquet.path: ${walked.planned}`, {
      hint: outputHint,
    });
  }
  return walked;
}

/** Before it is normalized, too: that would take out a wildcard that is followed by `..`. */
function goesUp(rest: string): boolean {
  return /(^|[/{,(|])\.\.([/},)|]|$)/.test(rest);
}

/** One spelling for a file however it was matched, absolute where the spec's was. */
function normalize(pattern: string, absolute: string, folder: string): string {
  return isAbsolute(pattern) ? absolute : relative(folder, absolute).split(sep).join("/");
}

async function statAll(
  uris: readonly string[],
  folder: string,
  output: string | undefined,
): Promise<Pick<Listing, "shards" | "absent" | "folders">> {
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
    if (isNothingThere(cause)) {
      throw new Vanished(path);
    }
    if (isDenied(cause)) {
      throw new JobError("PERMISSION", `${path} is not readable by this user`, {
        hint: "grant read permission",
        cause,
      });
    }
    throw diskFault(`looking at ${path}`, cause);
  }
}

export function fingerprintOf(stats: BigIntStats): string {
  return `mtime:${stats.mtimeNs}`;
}

export async function statOrUndefined(path: string): Promise<BigIntStats | undefined> {
  try {
    return await stat(path, { bigint: true });
  } catch (error) {
    if (isNothingThere(error)) {
      return undefined;
    }
    throw diskFault(`looking at ${path}`, error);
  }
}

/** The path without links; the path itself where nothing is. */
export async function realOr(path: string): Promise<string> {
  return await realpath(path).catch(() => path); // what is wrong with it, opening it tells
}
