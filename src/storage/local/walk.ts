import { lstat, readdir, realpath, stat } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from "node:path";
import { lakeTables } from "../../plan/lake-tables.js";
import { errnoOf, JobError } from "../../util/errors.js";
import { diskRepairFolder, type Glob, matchesFolderOnly, unreadableFolder } from "../glob.js";
import type { MissingFolder, UnreadableMatch } from "../port.js";

const folderConcurrency = 32;
const linkConcurrency = 32;

/** The part of a `Dirent` that a walk needs. */
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

/** The real system calls. */
export const walkFileSystem: WalkFileSystem = { readdir: (path) => readdir(path, { withFileTypes: true }), stat };

/** A file or folder vanished during a walk. The result may lack files that were moved during the walk. */
export class VanishedError extends Error {
  override readonly name = "VanishedError";
  readonly path: string;

  constructor(path: string) {
    super(`${path} is gone`);
    this.path = path;
  }
}

interface WalkRequest {
  readonly glob: Glob;
  /** The absolute folder that the pattern starts from. */
  readonly base: string;
  /** A file that will be written, without links in its path. */
  readonly planned: string | undefined;
  readonly fileSystem: WalkFileSystem;
}

/** What a pattern matches. Paths are absolute. */
export interface WalkResult {
  readonly files: readonly string[];
  readonly unreadable: readonly UnreadableMatch[];
  /** The path by which the pattern will match the planned file; undefined when it will not. */
  readonly planned: string | undefined;
  /** Present when the base folder does not exist. */
  readonly missing: MissingFolder | undefined;
  /** Folders above matching files, at any depth, that may be the roots of lakehouse tables. */
  readonly tableRoots: readonly string[];
}

interface Folder {
  /** Relative to the base; ends in a slash, except for the base itself. */
  readonly path: string;
  readonly names: readonly string[];
  /** The path without links. */
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
 * Walks a folder once, and collects all that a pattern matches.
 * @throws JobError PERMISSION, DISK for the first folder that cannot be listed; VanishedError when an entry vanishes
 */
export async function walk(request: WalkRequest): Promise<WalkResult> {
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
  const { base, planned, fileSystem } = state;
  const path = resolve(base, folder.path); // removes the slash at the end
  const plannedEntry = planned === undefined ? undefined : entryTowards(folder.real, planned);
  try {
    const entries = await fileSystem.readdir(path);
    return plannedEntry === undefined || entries.some(({ name }) => name === plannedEntry.name)
      ? entries
      : [...entries, plannedEntry];
  } catch (error) {
    if (isNotFound(error)) {
      if (folder.path === "") {
        state.missing = await missingFolder(path);
      } else if (plannedEntry === undefined) {
        throw new VanishedError(path);
      }
      return plannedEntry === undefined ? [] : [plannedEntry];
    }
    if (isDenied(error) && basename(path) === diskRepairFolder) {
      return [];
    }
    throw diskError(`listing ${path}`, error, {
      hint: "let this user read and enter the folder, or write a pattern that leaves it out",
    });
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

/** Visits the entries of a folder, and returns the links that may lead to matches. */
function visitEntries(state: WalkState, folder: Folder, entries: readonly FolderEntry[]): Link[] {
  const { glob, base, planned } = state;
  const links: Link[] = [];
  for (const entry of entries) {
    const { name } = entry;
    const path = folder.path + name;
    if (entry.isFile()) {
      if (glob.matches(path)) {
        state.files.push(path);
        if (planned !== undefined && basename(planned) === name && join(folder.real, name) === planned) {
          state.plannedAt = join(base, path);
        }
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
  const holdsOutput = planned !== undefined && entryTowards(to.real, planned) !== undefined;
  if (!holdsOutput && matchesFolderOnly(glob, path)) {
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

/** Errors of paths at which nothing can exist. */
const notFoundErrnos: ReadonlySet<string> = new Set(["ENOENT", "ENOTDIR", "ENAMETOOLONG", "ELOOP"]);

/** Whether an error says that a path does not exist. */
export function isNotFound(error: unknown): boolean {
  return notFoundErrnos.has(errnoOf(error) ?? "");
}

/** Whether an error says that permission is denied. */
export function isDenied(error: unknown): boolean {
  const errno = errnoOf(error);
  return errno === "EACCES" || errno === "EPERM";
}

/** Makes a JobError, PERMISSION or DISK, of a failed system call. `act` begins its message; `hint` is for PERMISSION. */
export function diskError(act: string, error: unknown, { hint = "grant read permission" } = {}): JobError {
  return isDenied(error)
    ? new JobError("PERMISSION", `${act}: permission denied`, { hint, cause: error })
    : new JobError("DISK", `${act}: ${errnoOf(error) ?? String(error)}`, {
        hint: "run the same command again; if that does not help, check the disk or mount, and the limit of open files",
        cause: error,
      });
}

/** Resolves links in a path of which the last parts may not exist yet. */
export async function plannedPath(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch (error) {
    const parent = dirname(path);
    return errnoOf(error) === "ENOENT" && parent !== path ? join(await plannedPath(parent), basename(path)) : path;
  }
}

/**
 * The entry of `folder` through which a path leads to `planned`, a file that may not exist yet; undefined when the file
 * is not below `folder`. Both are paths without links. A walk that visits this entry too finds out, by its own rules and
 * through its own links, whether its pattern will match that file.
 */
function entryTowards(folder: string, planned: string): FolderEntry | undefined {
  const rest = relative(folder, planned);
  const [name = "", ...more] = rest.split(sep);
  if (name === "" || name === ".." || isAbsolute(rest)) {
    return undefined;
  }
  const isFile = more.length === 0;
  return { name, isFile: () => isFile, isDirectory: () => !isFile, isSymbolicLink: () => false };
}
