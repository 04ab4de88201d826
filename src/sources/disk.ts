import { createHash } from "node:crypto";
import { type BigIntStats, constants, createReadStream } from "node:fs";
import { access, lstat, readdir, realpath, stat } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, posix, relative, resolve, sep } from "node:path";
import { type ListedShard, pinDifference, restoreHint, touchHint } from "../run/plan/compare.js";
import { lakeTables } from "../run/plan/lake-tables.js";
import { partitionsOf } from "../run/plan/partitions.js";
import { unwatched } from "../run/plan/plan.js";
import { JobError, errnoOf } from "../base/errors.js";
import {
  type Glob,
  compileGlob,
  diskRepairFolder,
  folderGlob,
  hasWildcards,
  isFolderName,
  joinListings,
  matchesFolderOnly,
  splitStaticFolder,
  unreadableFolder,
  withoutFoldersOfFiles,
} from "./listing.js";
import {
  type Listing,
  type MissingFolder,
  type OpenShard,
  type OutputFolder,
  type Source,
  type UnreadableMatch,
  outputHint,
} from "./source.js";

/** Opening more files together hardly speeds up reading. */
const coalescedFiles = 64;
const digestBytes = 1024 * 1024;

interface DiskSourceOptions {
  /** The spec's folder, to which relative URIs refer. */
  readonly folder: string;
  readonly output: OutputFolder | undefined;
  readonly fileSystem?: WalkFileSystem;
}

/** Opens a source of shards on a local or mounted disk. URIs are as in the spec: absolute, or relative to `folder`. */
export function diskSource({ folder, output, fileSystem = walkFileSystem }: DiskSourceOptions): Source {
  /** Folders whose links are being resolved: many files of one are opened together. */
  const resolving = new Map<string, Promise<string>>();
  const withRealFolder = async (path: string): Promise<string> => {
    const own = dirname(path);
    const real = resolving.get(own) ?? realPathOrSelf(own).finally(() => resolving.delete(own));
    resolving.set(own, real);
    return join(await real, basename(path));
  };
  return {
    readAhead: {
      files: 1,
      coalescedFiles,
      windowBytes: Number.POSITIVE_INFINITY,
      bytes: Number.POSITIVE_INFINITY,
    },
    list: (patterns) => listUntilStable(patterns, { folder, output, fileSystem }),
    published: () => Promise.resolve(unwatched),
    listNames: async (path) => {
      try {
        return await readdir(resolve(folder, path));
      } catch (error) {
        if (isNotFound(error) || isDenied(error)) {
          return [];
        }
        throw diskError(`listing ${path}`, error);
      }
    },
    async exists(uri) {
      return (await statOrUndefined(resolve(folder, uri))) !== undefined;
    },
    async open(shard) {
      // Resolved now: reading stays with the file that the link leads to now.
      const path = await withRealFolder(resolve(folder, shard.uri));
      const found = await statOrUndefined(path, lstat);
      const isLink = found?.isSymbolicLink() === true;
      const opened = new DiskShard(shard, isLink ? await realPathOrSelf(path) : path);
      opened.compare(isLink ? await statOrUndefined(opened.path) : found);
      return opened;
    },
    async [Symbol.asyncDispose]() {
      // The source holds nothing open.
    },
  };
}

/** A class, because there are many shards: closures of each would take most of their memory. */
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

  get partitions(): ReadonlyMap<string, string | null> {
    return partitionsOf(this.shard.uri);
  }

  async check(): Promise<void> {
    this.compare(await statOrUndefined(this.path));
  }

  /** @param now undefined: the file is gone */
  compare(now: BigIntStats | undefined): void {
    const { shard, path } = this;
    if (now === undefined) {
      throw new JobError("INPUT_CHANGED", `reading ${path}: it is gone`, {
        hint: `${restoreHint(shard)}; committed spans are kept`,
      });
    }
    const current = { uri: path, sizeBytes: Number(now.size), fingerprint: fingerprintOf(now) };
    const difference = pinDifference(shard, current);
    if (difference !== undefined) {
      const touch = [touchHint(shard, current, path)].filter((line) => line !== undefined);
      throw new JobError("INPUT_CHANGED", `reading ${path}: ${difference}`, {
        hint: [`${restoreHint(shard)}; committed spans are kept`, ...touch].join("\n    "),
      });
    }
  }

  async digest(signal: AbortSignal): Promise<string> {
    return await digestOf(this.path, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Nothing is held open.
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
    throw errno === undefined ? error : diskError(`reading ${path}`, error);
  }
  return hash.digest("hex");
}

const statConcurrency = 32;
/** How often folders are walked at most, when files or folders keep vanishing. */
const maxWalks = 4;

/** When a file or folder vanished, the walk may have missed it both where it was and where it went. */
async function listUntilStable(patterns: readonly string[], options: Required<DiskSourceOptions>): Promise<Listing> {
  for (let walks = 1; ; walks += 1) {
    try {
      return await listOnce(patterns, options);
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

async function listOnce(
  patterns: readonly string[],
  { folder, output, fileSystem }: Required<DiskSourceOptions>,
): Promise<Listing> {
  const realOutput = output === undefined ? undefined : await plannedPath(output.folder);
  const planned = output === undefined || realOutput === undefined ? undefined : join(realOutput, output.part);
  const plain = new Map<string, LookedAt | undefined>();
  const matched = new Set<string>();
  const findings: Partial<Listing>[] = [];
  for (const pattern of patterns) {
    const path = resolve(folder, pattern);
    const found = await lookAt(path);
    const kind = kindOf(pattern, found?.stats);
    if (kind === "file") {
      plain.set(normalize(pattern, path, folder), found);
      continue;
    }

    const start = kind === "folder" ? { folder: pattern, glob: folderGlob("") } : startOf(pattern);
    const walked = await walk({ glob: start.glob, base: resolve(folder, start.folder), planned, fileSystem });
    if (walked.planned !== undefined) {
      const message = `${pattern} matches what is written to output.parquet.path: ${walked.planned}`;
      throw new JobError("SPEC_INVALID", message, { hint: outputHint });
    }
    for (const file of walked.files) {
      matched.add(normalize(pattern, file, folder));
    }
    findings.push({
      unmatched: walked.files.length === 0 ? [pattern] : [],
      missingFolders: walked.missing === undefined ? [] : [{ pattern, ...walked.missing }],
      unreadable: walked.unreadable.map((match) => ({ pattern, ...match })),
      tableRoots: walked.tableRoots.map((root) => ({ pattern, folder: root })),
    });
  }

  const uris = [...new Set([...plain.keys(), ...matched])].toSorted();
  const listed = await statAll(uris, { folder, output: realOutput, known: plain });
  const gone = listed.missingFiles.find((uri) => !plain.has(uri));
  if (gone !== undefined) {
    throw new VanishedError(resolve(folder, gone));
  }
  const listing = joinListings([listed, ...findings]);
  const unreadable = withoutFoldersOfFiles(listing.unreadable, () => uris.map((uri) => resolve(folder, uri)));
  return { ...listing, unreadable };
}

/** A file that exists may have wildcards in its name. */
function kindOf(pattern: string, stats: BigIntStats | undefined): "file" | "folder" | "pattern" {
  if (hasWildcards(pattern)) {
    return stats?.isFile() === true ? "file" : "pattern";
  }
  return (stats?.isDirectory() ?? isFolderName(pattern)) ? "folder" : "file";
}

function startOf(pattern: string): { readonly folder: string; readonly glob: Glob } {
  // The folder before the first wildcard is a literal path: its name may contain brackets.
  const { folder: named, rest } = splitStaticFolder(posix.normalize(pattern).replace(/\/$/, ""));
  if (hasParentStep(rest) || hasParentStep(splitStaticFolder(pattern).rest)) {
    throw new JobError("SPEC_INVALID", `${pattern} goes up (..) after a wildcard`, {
      hint: "write each folder as a pattern of its own: input.path takes a list",
    });
  }
  return { folder: named, glob: compileGlob(rest) };
}

/** Normalizing would remove the wildcard before `..`, so this is asked before and after. */
function hasParentStep(rest: string): boolean {
  return /(^|[/{,(|])\.\.([/},)|]|$)/.test(rest);
}

/** Spells a file's path the same however it was matched. */
function normalize(pattern: string, absolute: string, folder: string): string {
  return isAbsolute(pattern) ? absolute : relative(folder, absolute).split(sep).join("/");
}

async function statAll(
  uris: readonly string[],
  {
    folder,
    output,
    known,
  }: {
    readonly folder: string;
    readonly output: string | undefined;
    readonly known: ReadonlyMap<string, LookedAt | undefined>;
  },
): Promise<Pick<Listing, "shards" | "missingFiles" | "folders">> {
  const shards: ListedShard[] = [];
  const missingFiles: string[] = [];
  const folders = new Set<string>();
  const isRepeat = createDuplicateCheck();
  /** The paths of folders without links: many files are in one. */
  const realFolders = new Map<string, Promise<string>>();
  const realFolderOf = (path: string): Promise<string> => {
    const real = realFolders.get(path) ?? realPathOrSelf(path);
    realFolders.set(path, real);
    return real;
  };
  const look = async (uri: string): Promise<ShardOnDisk | undefined> => {
    const path = resolve(folder, uri);
    const found = known.get(uri) ?? (await lookAt(path));
    return found && (await shardOf(uri, path, found, realFolderOf));
  };
  for (let start = 0; start < uris.length; start += statConcurrency) {
    const group = uris.slice(start, start + statConcurrency);
    const files = await Promise.all(group.map(look));
    for (const [index, file] of files.entries()) {
      if (file === undefined) {
        missingFiles.push(group[index] ?? "");
      } else if (!isRepeat(file.fileId, file.shard.uri)) {
        // A run must not score what it wrote.
        if (output !== undefined && file.realPath.startsWith(`${output}${sep}`)) {
          throw new JobError("SPEC_INVALID", `${file.realPath} is in output.parquet.path`, { hint: outputHint });
        }
        shards.push(file.shard);
        folders.add(dirname(file.realPath));
      }
    }
  }
  return { shards, missingFiles, folders: [...folders] };
}

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

/** Different values make different rows of one file. */
function agreeOnPartitions(
  one: ReadonlyMap<string, string | null>,
  other: ReadonlyMap<string, string | null>,
): boolean {
  return [...one].every(([name, value]) => !other.has(name) || other.get(name) === value);
}

/** `realPath` has no links; `fileId` is the same for all names of a file. */
interface ShardOnDisk {
  readonly shard: ListedShard;
  readonly realPath: string;
  readonly fileId: string;
}

async function shardOf(
  uri: string,
  path: string,
  { stats, isLink }: LookedAt,
  realFolderOf: (folder: string) => Promise<string>,
): Promise<ShardOnDisk> {
  if (!stats.isFile()) {
    throw new JobError("FILE_MISSING", `${path} is not a plain file`, {
      hint: "a path of input.path is a file, a folder or a pattern; remove this one",
    });
  }
  if ((stats.mode & everyoneReads) !== everyoneReads) {
    await assertReadable(path);
  }
  const shard = { uri, sizeBytes: Number(stats.size), fingerprint: fingerprintOf(stats) };
  const realPath = isLink ? await realPathOrSelf(path) : join(await realFolderOf(dirname(path)), basename(path));
  // Inode numbers are used only for hard links: not every file system gives each file a number of its own.
  return { shard, realPath, fileId: stats.nlink > 1n ? `${stats.dev}:${stats.ino}` : realPath };
}

const everyoneReads = 0o444n;

interface LookedAt {
  readonly stats: BigIntStats;
  readonly isLink: boolean;
}

async function lookAt(path: string): Promise<LookedAt | undefined> {
  const own = await statOrUndefined(path, lstat);
  const isLink = own?.isSymbolicLink() === true;
  const stats = isLink ? await statOrUndefined(path) : own;
  return stats && { stats, isLink };
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

function fingerprintOf(stats: BigIntStats): string {
  return `mtime:${stats.mtimeNs}`;
}

async function statOrUndefined(path: string, call: typeof stat = stat): Promise<BigIntStats | undefined> {
  try {
    return await call(path, { bigint: true });
  } catch (error) {
    if (isNotFound(error)) {
      return undefined;
    }
    throw diskError(`checking ${path}`, error);
  }
}

async function realPathOrSelf(path: string): Promise<string> {
  return await realpath(path).catch(() => path); // opening the path reports its error
}

const folderConcurrency = 32;
const linkConcurrency = 32;

interface FolderEntry {
  readonly name: string;
  isFile(): boolean;
  isDirectory(): boolean;
  isSymbolicLink(): boolean;
}

/** The system calls of a walk, which tests replace. */
export interface WalkFileSystem {
  readdir(folder: string): Promise<readonly FolderEntry[]>;
  stat(path: string): Promise<Pick<FolderEntry, "isFile" | "isDirectory">>;
}

/** The real system calls. @public so that tests replace a call */
export const walkFileSystem: WalkFileSystem = { readdir: (path) => readdir(path, { withFileTypes: true }), stat };

/** The result of the walk may lack files that were moved during it. */
class VanishedError extends Error {
  override readonly name = "VanishedError";
  readonly path: string;

  constructor(path: string) {
    super(`${path} is gone`);
    this.path = path;
  }
}

interface WalkRequest {
  readonly glob: Glob;
  readonly base: string;
  /** A file that will be written, without links in its path. */
  readonly planned: string | undefined;
  readonly fileSystem: WalkFileSystem;
}

/** Paths are absolute. */
interface WalkResult {
  readonly files: readonly string[];
  readonly unreadable: readonly UnreadableMatch[];
  /** The path by which the pattern will match the planned file; undefined when it will not. */
  readonly planned: string | undefined;
  readonly missing: MissingFolder | undefined;
  readonly tableRoots: readonly string[];
}

interface Folder {
  /** Relative to the base; ends in a slash, except for the base itself. */
  readonly path: string;
  readonly names: readonly string[];
  readonly real: string;
  /** Link targets that the walk passed on its way here, without links; they break cycles. */
  readonly linked: readonly string[];
}

interface WalkState extends WalkRequest {
  readonly pending: Folder[];
  readonly files: string[];
  readonly unreadable: UnreadableMatch[];
  /** Folders, relative to the base, that contain one named as a table's log. */
  readonly logged: string[];
  /** Link targets of the whole walk, without links. */
  readonly linked: Set<string>;
  plannedAt: string | undefined;
  missing: MissingFolder | undefined;
}

const logFolders: ReadonlySet<string> = new Set(lakeTables.map(({ log }) => log));

/**
 * @throws JobError PERMISSION, DISK for the first folder that cannot be listed; VanishedError when an entry vanishes
 */
async function walk(request: WalkRequest): Promise<WalkResult> {
  const real = await plannedPath(request.base);
  const state: WalkState = {
    ...request,
    pending: [{ path: "", names: [], real, linked: [real] }],
    files: [],
    unreadable: [],
    logged: [],
    linked: new Set([real]),
    plannedAt: undefined,
    missing: undefined,
  };
  notePlanned(state, "", real);
  while (state.pending.length > 0) {
    const group = state.pending.splice(-folderConcurrency);
    const entries = await Promise.all(group.map((folder) => readFolder(state, folder)));
    const links = group.flatMap((folder, index) => visitEntries(state, folder, entries[index] ?? []));
    for (let start = 0; start < links.length; start += linkConcurrency) {
      await Promise.all(links.slice(start, start + linkConcurrency).map((link) => followLink(state, link)));
    }
  }
  return resultOf(state);
}

function resultOf({ base, files, unreadable, ...state }: WalkState): WalkResult {
  const logged = state.logged.filter((folder) => files.some((file) => file.startsWith(folder)));
  // The walk saw each folder completely, logs included, but nothing of the folders above it.
  const above = [base, ...state.linked].flatMap((folder) => ancestorsOf(dirname(folder)));
  const tableRoots = new Set([...logged.map((folder) => resolve(base, folder)), ...above]);
  return {
    files: files.map((path) => join(base, path)),
    unreadable,
    planned: state.plannedAt,
    missing: state.missing,
    tableRoots: files.length === 0 ? [] : [...tableRoots],
  };
}

function ancestorsOf(folder: string): string[] {
  const parent = dirname(folder);
  return parent === folder ? [folder] : [folder, ...ancestorsOf(parent)];
}

async function readFolder(state: WalkState, folder: Folder): Promise<readonly FolderEntry[]> {
  const path = resolve(state.base, folder.path); // removes the slash at the end
  try {
    return await state.fileSystem.readdir(path);
  } catch (error) {
    if (isNotFound(error) && folder.path !== "" && !isAbove(folder.real, state.planned)) {
      throw new VanishedError(path);
    }
    if (isNotFound(error)) {
      state.missing ??= folder.path === "" ? await missingFolder(path) : undefined;
      return [];
    }
    if (isDenied(error) && basename(path) === diskRepairFolder) {
      return [];
    }
    throw diskError(`listing ${path}`, error, {
      hint: "let this user read and enter the folder, or write a pattern that leaves it out",
    });
  }
}

/** Both are paths without links. */
function isAbove(folder: string, planned: string | undefined): boolean {
  return planned?.startsWith(folder.endsWith(sep) ? folder : `${folder}${sep}`) === true;
}

/** Finds out whether the pattern will match the planned file by a folder that is listed, or that a link leads to. */
function notePlanned(state: WalkState, folder: string, real: string): void {
  const { planned, glob, base } = state;
  if (planned !== undefined && isAbove(real, planned)) {
    const path = folder + relative(real, planned).split(sep).join("/");
    state.plannedAt = glob.matches(path) ? join(base, path) : state.plannedAt;
  }
}

async function missingFolder(folder: string): Promise<MissingFolder> {
  const parent = dirname(folder);
  const isThere = await stat(parent).then(
    () => true,
    (error: unknown) => !isNotFound(error),
  );
  return isThere ? { folder, parentExists: true } : { ...(await missingFolder(parent)), parentExists: false };
}

interface Link {
  readonly folder: Folder;
  readonly name: string;
}

/** Returns the links that may lead to matches. */
function visitEntries(state: WalkState, folder: Folder, entries: readonly FolderEntry[]): Link[] {
  const { glob } = state;
  const links: Link[] = [];
  for (const entry of entries) {
    const { name } = entry;
    const path = folder.path + name;
    if (entry.isFile()) {
      if (glob.matches(path)) {
        state.files.push(path);
      }
    } else if (entry.isDirectory()) {
      visitFolder(state, { folder, name }, { real: join(folder.real, name), linked: folder.linked });
    } else if (!entry.isSymbolicLink()) {
      visitOther(state, path);
    } else if (glob.matches(path) || glob.mayMatchBelow([...folder.names, name])) {
      links.push({ folder, name });
    }
  }
  return links;
}

function visitFolder(state: WalkState, { folder, name }: Link, to: Pick<Folder, "real" | "linked">): void {
  const { glob, base, planned } = state;
  const names = [...folder.names, name];
  const path = folder.path + name;
  if (logFolders.has(name)) {
    state.logged.push(folder.path);
  }
  if (glob.mayMatchBelow(names)) {
    state.pending.push({ path: `${path}/`, names, ...to });
  }
  if (!isAbove(to.real, planned) && matchesFolderOnly(glob, path)) {
    state.unreadable.push(unreadableFolder(join(base, path)));
  }
}

function visitOther({ glob, base, unreadable }: WalkState, path: string): void {
  if (glob.matches(path)) {
    unreadable.push({
      path: join(base, path),
      finding: "which is not a file (a FIFO, socket or device)",
      hint: "remove it, or write a pattern that does not match it",
    });
  }
}

async function followLink(state: WalkState, link: Link): Promise<void> {
  const { glob, base, files, unreadable, fileSystem } = state;
  const path = link.folder.path + link.name;
  const absolute = join(base, path);
  try {
    const target = await fileSystem.stat(absolute);
    if (target.isFile()) {
      if (glob.matches(path)) {
        files.push(path);
      }
    } else if (target.isDirectory()) {
      const real = await realpath(absolute);
      if (!link.folder.linked.includes(real)) {
        state.linked.add(real);
        notePlanned(state, `${path}/`, real);
        visitFolder(state, link, { real, linked: [...link.folder.linked, real] });
      }
    } else {
      visitOther(state, path);
    }
  } catch (error) {
    if (!isNotFound(error)) {
      throw diskError(`checking ${absolute}`, error, { hint: "grant read permission on what the link leads to" });
    }
    // The link itself is gone, or on its way.
    await lstat(absolute).catch(() => {
      throw new VanishedError(absolute);
    });
    unreadable.push({
      path: absolute,
      finding: "which is a link that leads to nothing",
      hint: "restore the target of the link (is a disk not mounted?), or remove the link",
    });
  }
}

const notFoundErrnos: ReadonlySet<string> = new Set(["ENOENT", "ENOTDIR", "ENAMETOOLONG", "ELOOP"]);

function isNotFound(error: unknown): boolean {
  return notFoundErrnos.has(errnoOf(error) ?? "");
}

function isDenied(error: unknown): boolean {
  const errno = errnoOf(error);
  return errno === "EACCES" || errno === "EPERM";
}

/** `act` begins its message; `hint` is for PERMISSION. */
function diskError(act: string, error: unknown, { hint = "grant read permission" } = {}): JobError {
  return isDenied(error)
    ? new JobError("PERMISSION", `${act}: permission denied`, { hint, cause: error })
    : new JobError("DISK", `${act}: ${errnoOf(error) ?? String(error)}`, {
        hint: "run the same command again; if that does not help, check the disk or mount, and the limit of open files",
        cause: error,
      });
}

/** The last parts of the path may not exist yet. */
async function plannedPath(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch (error) {
    const parent = dirname(path);
    return errnoOf(error) === "ENOENT" && parent !== path ? join(await plannedPath(parent), basename(path)) : path;
  }
}
