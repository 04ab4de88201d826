import { lstat, readdir, realpath, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { lakeTables } from "../../plan/lake-tables.js";
import { diskFault, isDenied, isNothingThere } from "./disk-fault.js";
import { type Entry, entryTowards, plannedPath } from "./planned-path.js";
import { diskRepairFolder, folderUnread, type Glob, isFolderLeftOut } from "../glob.js";
import type { MissingFolder, UnreadMatch } from "../port.js";

const foldersAtOnce = 32;
const linksAtOnce = 32;

interface FileKind {
  isFile(): boolean;
  isDirectory(): boolean;
}

/** What a walk asks of the system. */
export interface WalkFileSystem {
  readdir(folder: string): Promise<readonly Entry[]>;
  stat(path: string): Promise<FileKind>;
}

export const walkFileSystem: WalkFileSystem = { readdir: (path) => readdir(path, { withFileTypes: true }), stat };

/** A folder or file that was there a moment ago is gone: what was found so far may lack some of what was moved. */
export class Vanished extends Error {
  override readonly name = "Vanished";
  readonly path: string;

  constructor(path: string) {
    super(`${path} is gone`);
    this.path = path;
  }
}

export interface Walk {
  readonly glob: Glob;
  /** The folder that the pattern starts from, absolute. */
  readonly base: string;
  /** Where a file will be, without links. */
  readonly planned: string | undefined;
  readonly fileSystem: WalkFileSystem;
}

/** What matches below a folder. Paths are absolute. */
export interface Walked {
  readonly files: readonly string[];
  readonly unread: readonly UnreadMatch[];
  /** The path under which the pattern will match the planned file. */
  readonly planned: string | undefined;
  /** Where the folder to start from is not there. */
  readonly missing: MissingFolder | undefined;
  /** Folders with files that match, at any depth, which may be those of lakehouse tables. */
  readonly tableRoots: readonly string[];
}

interface Folder {
  /** Relative to the base, with a slash at its end unless it is the base. */
  readonly path: string;
  readonly names: readonly string[];
  /** Without links. */
  readonly real: string;
  /** The folders that the walk came to through links, without links. */
  readonly linked: readonly string[];
}

interface Progress extends Walk {
  readonly pending: Folder[];
  readonly files: string[];
  readonly unread: UnreadMatch[];
  /** Folders that have one whose name a table's log has, relative. */
  readonly logged: string[];
  /** Folders that links lead to, without links. */
  readonly linked: Set<string>;
  plannedAt: string | undefined;
  missing: MissingFolder | undefined;
}

const logFolders: ReadonlySet<string> = new Set(lakeTables.map(({ log }) => log));

/**
 * Walks a folder once and tells all that a pattern matches there: what cannot be listed ends the walk.
 * @throws JobError PERMISSION, DISK; Vanished when something goes meanwhile
 */
export async function walk(request: Walk): Promise<Walked> {
  const real = await plannedPath(request.base);
  const progress: Progress = {
    ...request,
    pending: [{ path: "", names: [], real, linked: [real] }],
    files: [],
    unread: [],
    logged: [],
    linked: new Set([real]),
    plannedAt: undefined,
    missing: undefined,
  };
  while (progress.pending.length > 0) {
    const group = progress.pending.splice(-foldersAtOnce);
    const found = await Promise.all(group.map((folder) => entriesOf(progress, folder)));
    const links = group.flatMap((folder, index) => takeEntries(progress, folder, found[index] ?? []));
    for (let start = 0; start < links.length; start += linksAtOnce) {
      await Promise.all(links.slice(start, start + linksAtOnce).map((link) => follow(progress, link)));
    }
  }
  return walked(progress);
}

function walked({ base, files, unread, ...progress }: Progress): Walked {
  const logged = progress.logged.filter((folder) => files.some((file) => file.startsWith(folder)));
  // All of a folder that was walked was seen, logs too; those above it were not.
  const above = [base, ...progress.linked].flatMap((folder) => ancestorsOf(dirname(folder)));
  const tableRoots = new Set([...logged.map((folder) => resolve(base, folder)), ...above]);
  return {
    files: files.map((path) => join(base, path)),
    unread,
    planned: progress.plannedAt,
    missing: progress.missing,
    tableRoots: files.length === 0 ? [] : [...tableRoots],
  };
}

/** The folder and all above it. */
function ancestorsOf(folder: string): string[] {
  const parent = dirname(folder);
  return parent === folder ? [folder] : [folder, ...ancestorsOf(parent)];
}

async function entriesOf(progress: Progress, folder: Folder): Promise<readonly Entry[]> {
  const { base, planned, fileSystem } = progress;
  const path = resolve(base, folder.path); // without a slash at its end
  const ahead = planned === undefined ? undefined : entryTowards(folder.real, planned);
  try {
    const entries = await fileSystem.readdir(path);
    return ahead === undefined || entries.some(({ name }) => name === ahead.name) ? entries : [...entries, ahead];
  } catch (error) {
    if (isNothingThere(error)) {
      if (folder.path === "") {
        progress.missing = await missingFolder(path);
      } else if (ahead === undefined) {
        throw new Vanished(path);
      }
      return ahead === undefined ? [] : [ahead];
    }
    if (isDenied(error) && basename(path) === diskRepairFolder) {
      return [];
    }
    throw diskFault(`listing ${path}`, error, {
      hint: "let this user read and enter the folder, or write a pattern that leaves it out",
    });
  }
}

async function missingFolder(folder: string): Promise<MissingFolder> {
  const parent = dirname(folder);
  const isThere = await stat(parent).then(
    () => true,
    (error: unknown) => !isNothingThere(error),
  );
  return isThere ? { folder, isParentThere: true } : { ...(await missingFolder(parent)), isParentThere: false };
}

interface Link {
  readonly folder: Folder;
  readonly name: string;
}

/** Returns the links that may lead to something that matches. */
function takeEntries(progress: Progress, folder: Folder, entries: readonly Entry[]): Link[] {
  const { glob, base, planned } = progress;
  const links: Link[] = [];
  for (const entry of entries) {
    const { name } = entry;
    const path = folder.path + name;
    if (entry.isFile()) {
      if (glob.matches(path)) {
        progress.files.push(path);
        if (planned !== undefined && basename(planned) === name && join(folder.real, name) === planned) {
          progress.plannedAt = join(base, path);
        }
      }
    } else if (entry.isDirectory()) {
      takeFolder(progress, { folder, name }, { real: join(folder.real, name), linked: folder.linked });
    } else if (!entry.isSymbolicLink()) {
      takeOther(progress, path);
    } else if (glob.matches(path) || glob.mayMatchBelow([...folder.names, name])) {
      links.push({ folder, name });
    }
  }
  return links;
}

function takeFolder(progress: Progress, { folder, name }: Link, to: Pick<Folder, "real" | "linked">): void {
  const { glob, base, planned } = progress;
  const names = [...folder.names, name];
  const path = folder.path + name;
  if (logFolders.has(name)) {
    progress.logged.push(folder.path);
  }
  if (glob.mayMatchBelow(names)) {
    progress.pending.push({ path: `${path}/`, names, ...to });
  }
  const holdsOutput = planned !== undefined && entryTowards(to.real, planned) !== undefined;
  if (!holdsOutput && isFolderLeftOut(glob, path)) {
    progress.unread.push(folderUnread(join(base, path)));
  }
}

/** A FIFO, a socket or a device. */
function takeOther({ glob, base, unread }: Progress, path: string): void {
  if (glob.matches(path)) {
    unread.push({
      path: join(base, path),
      finding: "which is no file (a FIFO, socket or device)",
      hint: "remove it, or write a pattern that does not match it",
    });
  }
}

async function follow(progress: Progress, link: Link): Promise<void> {
  const { glob, base, files, unread, fileSystem } = progress;
  const path = link.folder.path + link.name;
  const absolute = join(base, path);
  try {
    const found = await fileSystem.stat(absolute);
    if (found.isFile()) {
      if (glob.matches(path)) {
        files.push(path);
      }
    } else if (found.isDirectory()) {
      const real = await realpath(absolute);
      if (!link.folder.linked.includes(real)) {
        progress.linked.add(real);
        takeFolder(progress, link, { real, linked: [...link.folder.linked, real] });
      }
    } else {
      takeOther(progress, path);
    }
  } catch (error) {
    if (!isNothingThere(error)) {
      throw diskFault(`looking at ${absolute}`, error, { hint: "grant read permission on what the link leads to" });
    }
    // The link itself is gone, or on its way.
    await lstat(absolute).catch(() => {
      throw new Vanished(absolute);
    });
    unread.push({
      path: absolute,
      finding: "which is a link that leads to nothing",
      hint: "put back what it leads to (is a disk not mounted?), or remove the link",
    });
  }
}
