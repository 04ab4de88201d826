import { type BigIntStats, constants } from "node:fs";
import { access, realpath, stat } from "node:fs/promises";
import { dirname, isAbsolute, join, posix, relative, resolve, sep } from "node:path";
import { JobError } from "../../util/errors.js";
import type { ListedShard } from "../../plan/compare.js";
import { partitionsOf } from "../../plan/partitions.js";
import { diskError, isDenied, isNotFound } from "./disk-error.js";
import { plannedPath } from "./planned-path.js";
import {
  compileGlob,
  folderGlob,
  type Glob,
  hasWildcards,
  isFolderName,
  splitStaticFolder,
  withoutFoldersOfFiles,
} from "../glob.js";
import { type OutputFolder, outputHint } from "../output-folder.js";
import { joinListings } from "../join-listings.js";
import type { Listing } from "../port.js";
import { VanishedError, walk, type WalkResult, type WalkFileSystem } from "./walk.js";

const statConcurrency = 32;
/** How often folders are walked at most, when files or folders keep vanishing. */
const maxWalks = 4;

/** The inputs of a listing, other than its patterns. */
interface ListingContext {
  /** The spec's folder, to which relative patterns refer. */
  readonly folder: string;
  readonly output: OutputFolder | undefined;
  readonly fileSystem: WalkFileSystem;
}

/** Lists again when a file or folder vanished: the walk may have missed it both where it was and where it went. */
export async function listUntilStable(patterns: readonly string[], context: ListingContext): Promise<Listing> {
  for (let walks = 1; ; walks += 1) {
    try {
      return await listOnce(patterns, context);
    } catch (error) {
      if (!(error instanceof VanishedError)) {
        throw error;
      }
      if (walks === maxWalks) {
        throw new JobError(
          "INPUT_NOT_READY",
          `listing input.path: files and folders vanish during the listing, such as ${error.path}`,
          {
            hint: "run the same command again when nothing moves or removes files there; with input.ready, a run waits for a marker file that is written last",
            cause: error,
          },
        );
      }
    }
  }
}

async function listOnce(patterns: readonly string[], { folder, output, fileSystem }: ListingContext): Promise<Listing> {
  const realOutput = output === undefined ? undefined : await plannedPath(output.folder);
  const planned = output === undefined || realOutput === undefined ? undefined : join(realOutput, output.part);
  const plain = new Set<string>();
  const matched = new Set<string>();
  const findings: Partial<Listing>[] = [];
  for (const pattern of patterns) {
    const kind = await kindOf(pattern, folder);
    if (kind === "file") {
      plain.add(normalize(pattern, resolve(folder, pattern), folder));
      continue;
    }
    const start = kind === "folder" ? { folder: pattern, glob: folderGlob("") } : startOf(pattern);
    const walked = await walkFrom(start, { pattern, folder, planned, fileSystem });
    for (const path of walked.files) {
      matched.add(normalize(pattern, path, folder));
    }
    findings.push({
      unmatched: walked.files.length === 0 ? [pattern] : [],
      missingFolders: walked.missing === undefined ? [] : [{ pattern, ...walked.missing }],
      unreadable: walked.unreadable.map((one) => ({ pattern, ...one })),
      tableRoots: walked.tableRoots.map((root) => ({ pattern, folder: root })),
    });
  }
  const uris = [...new Set([...plain, ...matched])].toSorted();
  const found = await statAll(uris, folder, realOutput);
  const gone = found.missingFiles.find((uri) => !plain.has(uri));
  if (gone !== undefined) {
    throw new VanishedError(resolve(folder, gone));
  }
  const listing = joinListings([found, ...findings]);
  const unreadable = withoutFoldersOfFiles(listing.unreadable, () => uris.map((uri) => resolve(folder, uri)));
  return { ...listing, unreadable };
}

/** What a text of `input.path` is. A file that exists may have wildcards in its name. */
async function kindOf(pattern: string, folder: string): Promise<"file" | "folder" | "pattern"> {
  const found = await statOrUndefined(resolve(folder, pattern));
  if (hasWildcards(pattern)) {
    return found?.isFile() === true ? "file" : "pattern";
  }
  return (found?.isDirectory() ?? isFolderName(pattern)) ? "folder" : "file";
}

interface WalkStart {
  /** The folder that all matches are below, as the spec names it. */
  readonly folder: string;
  readonly glob: Glob;
}

/** @throws JobError SPEC_INVALID for a pattern that goes up */
function startOf(pattern: string): WalkStart {
  // The folder before the first wildcard is a literal path: its name may contain brackets.
  const { folder: named, rest } = splitStaticFolder(posix.normalize(pattern).replace(/\/$/, ""));
  if (hasParentStep(rest) || hasParentStep(splitStaticFolder(pattern).rest)) {
    throw new JobError("SPEC_INVALID", `${pattern} goes up (..) after a wildcard`, {
      hint: "write each folder as a pattern of its own: input.path takes a list",
    });
  }
  return { folder: named, glob: compileGlob(rest) };
}

interface WalkTools extends Pick<ListingContext, "folder" | "fileSystem"> {
  readonly pattern: string;
  readonly planned: string | undefined;
}

/** @throws JobError SPEC_INVALID when `planned` matches, a file that will be written */
async function walkFrom(
  { folder: named, glob }: WalkStart,
  { pattern, folder, planned, fileSystem }: WalkTools,
): Promise<WalkResult> {
  const walked = await walk({ glob, base: resolve(folder, named), planned, fileSystem });
  if (walked.planned !== undefined) {
    throw new JobError("SPEC_INVALID", `${pattern} matches what is written to output.parquet.path: ${walked.planned}`, {
      hint: outputHint,
    });
  }
  return walked;
}

/** Whether `..` follows a wildcard. Normalizing would remove the wildcard before it, so this is asked before and after. */
function hasParentStep(rest: string): boolean {
  return /(^|[/{,(|])\.\.([/},)|]|$)/.test(rest);
}

/** Spells a file's path the same however it was matched: absolute when the pattern is, else relative to the spec's folder. */
function normalize(pattern: string, absolute: string, folder: string): string {
  return isAbsolute(pattern) ? absolute : relative(folder, absolute).split(sep).join("/");
}

async function statAll(
  uris: readonly string[],
  folder: string,
  output: string | undefined,
): Promise<Pick<Listing, "shards" | "missingFiles" | "folders">> {
  const shards: ListedShard[] = [];
  const missingFiles: string[] = [];
  const folders = new Set<string>();
  const isRepeat = createDuplicateCheck();
  for (let start = 0; start < uris.length; start += statConcurrency) {
    const group = uris.slice(start, start + statConcurrency);
    const found = await Promise.all(group.map((uri) => statShard(uri, resolve(folder, uri))));
    for (const [index, one] of found.entries()) {
      if (one === undefined) {
        missingFiles.push(group[index] ?? "");
      } else if (!isRepeat(one.fileId, one.shard.uri)) {
        rejectOutput(one.realPath, output);
        shards.push(one.shard);
        folders.add(dirname(one.realPath));
      }
    }
  }
  return { shards, missingFiles, folders: [...folders] };
}

/** Makes a function that returns whether a file was listed before, with the same partition values. */
function createDuplicateCheck(): (file: string, uri: string) => boolean {
  const seen = new Map<string, ReadonlyMap<string, string | null>[]>();
  return (file, uri) => {
    const partitions = partitionsOf(uri);
    const before = seen.get(file) ?? [];
    const repeated = before.some((others) => agreeOnPartitions(partitions, others));
    if (!repeated) {
      seen.set(file, [...before, partitions]);
    }
    return repeated;
  };
}

/** Whether no column has different values in both: different values make different rows of one file. */
function agreeOnPartitions(
  one: ReadonlyMap<string, string | null>,
  other: ReadonlyMap<string, string | null>,
): boolean {
  return [...one].every(([name, value]) => !other.has(name) || other.get(name) === value);
}

/** @throws JobError SPEC_INVALID for a path in the output folder: a run must not score what it wrote */
function rejectOutput(path: string, output: string | undefined): void {
  if (output !== undefined && path.startsWith(`${output}${sep}`)) {
    throw new JobError("SPEC_INVALID", `${path} is in output.parquet.path`, {
      hint: outputHint,
    });
  }
}

interface FoundFile {
  readonly shard: ListedShard;
  /** The path with links resolved. */
  readonly realPath: string;
  /** An identifier of the file, the same for all of its names. */
  readonly fileId: string;
}

async function statShard(uri: string, path: string): Promise<FoundFile | undefined> {
  const found = await statOrUndefined(path);
  if (found === undefined) {
    return undefined;
  }
  if (!found.isFile()) {
    throw new JobError("FILE_MISSING", `${path} is not a plain file`, {
      hint: "a path of input.path is a file, a folder or a pattern; remove this one",
    });
  }
  await assertReadable(path);
  const shard = { uri, sizeBytes: Number(found.size), fingerprint: fingerprintOf(found) };
  const realPath = await realPathOrSelf(path);
  // Inode numbers are used only for hard links: not every file system gives each file a number of its own.
  return { shard, realPath, fileId: found.nlink > 1n ? `${found.dev}:${found.ino}` : realPath };
}

async function assertReadable(path: string): Promise<void> {
  try {
    await access(path, constants.R_OK);
  } catch (cause) {
    if (isNotFound(cause)) {
      throw new VanishedError(path);
    }
    if (isDenied(cause)) {
      throw new JobError("PERMISSION", `${path} is not readable by this user`, {
        hint: "grant read permission",
        cause,
      });
    }
    throw diskError(`checking ${path}`, cause);
  }
}

/** A file's fingerprint in the plan: its modification time. */
export function fingerprintOf(stats: BigIntStats): string {
  return `mtime:${stats.mtimeNs}`;
}

/** The stats of a path; undefined when it does not exist. @throws JobError PERMISSION, DISK */
export async function statOrUndefined(path: string): Promise<BigIntStats | undefined> {
  try {
    return await stat(path, { bigint: true });
  } catch (error) {
    if (isNotFound(error)) {
      return undefined;
    }
    throw diskError(`checking ${path}`, error);
  }
}

/** The path with links resolved; unchanged when it does not exist. */
export async function realPathOrSelf(path: string): Promise<string> {
  return await realpath(path).catch(() => path); // opening the path reports its error
}
