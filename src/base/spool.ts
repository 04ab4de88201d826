import { randomBytes } from "node:crypto";
import { access, constants, lstat, mkdir, readdir, rm, stat } from "node:fs/promises";
import { hostname, tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { errnoOf, type ErrorCode, JobError } from "./errors.js";

/** Where a spool is, and how much it may hold. */
export interface SpoolOptions {
  /** The folder that has a subfolder for each process. Created when it is missing, with mode 0700. */
  readonly root: string;
  /** Names this process among all processes on all machines. */
  readonly writer: string;
  /**
   * The purpose of the spool, since a process may have several: "in" for downloads, "out" for uploads, "rows" for rows
   * of open spans, "keys" for keys that do not fit in memory, "copies" for shards that are rewritten.
   */
  readonly use: "in" | "out" | "rows" | "keys" | "copies";
  /** Whether a writer's process has ended; its leftovers are removed. */
  readonly isDead: (writer: string) => boolean;
  /** The largest file, and the most bytes in flight together. */
  readonly maxBytes: number;
}

/** A folder for files that are fetched until they are read, or written until they are sent. Disposing removes it. */
export interface Spool extends AsyncDisposable {
  readonly folder: string;
  readonly use: SpoolOptions["use"];
  readonly maxBytes: number;
  /** Creates the folder, once, and removes the folders of dead processes. @throws JobError PERMISSION, USAGE, DISK */
  prepare(): Promise<void>;
  /** Returns a path that no earlier call returned. */
  newPath(): string;
}

/** Returns the folder of spools. @param named the folder in the spec, relative to `folder`; undefined: the machine's own */
export function spoolRoot(folder: string, named: string | undefined): string {
  // Not os.userInfo(): in a container a user need not have a name, and it throws then.
  return named === undefined ? join(tmpdir(), `infer-batch-spool-${process.getuid?.()}`) : resolve(folder, named);
}

/** How many spools this process has opened under each name: two targets of a job have one each for the same use. */
const opened = new Map<string, number>();

/** The folder's name begins with the writer's, whose death removes it. */
function ownFolder({ root, writer, use }: Pick<SpoolOptions, "root" | "writer" | "use">): string {
  const first = join(root, `${writer}.${use}`);
  const number = (opened.get(first) ?? 0) + 1;
  opened.set(first, number);
  return number === 1 ? first : `${first}.${number}`;
}

/** Makes a spool; its folder is created by `prepare`, and no other spool has it. */
export function openSpool({ root, writer, use, isDead, maxBytes }: SpoolOptions): Spool {
  const folder = ownFolder({ root, writer, use });
  // Another process that had this one's id before is dead; a folder under this writer's name is this process's own.
  const isOwn = (name: string): boolean => name.startsWith(`${writer}.`);
  let files = 0;
  let prepared: Promise<void> | undefined;
  return {
    folder,
    use,
    maxBytes,
    prepare: () =>
      (prepared ??= withSpoolErrors({ folder: root, use }, async () => {
        await prepare({ root, folder, use }, (name) => !isOwn(name) && isDead(name));
      })),
    newPath() {
      files += 1;
      return join(folder, `${files}.spool`); // the suffix keeps one name from being a prefix of another
    },
    async [Symbol.asyncDispose]() {
      await prepared?.then(
        () => rm(folder, { recursive: true, force: true }),
        () => undefined, // it was not made
      );
    },
  };
}

/** Checks that a spool can be made. Makes nothing. @throws JobError as `prepare` */
export async function checkSpool({ root, use }: Pick<SpoolOptions, "root" | "use">): Promise<void> {
  await withSpoolErrors({ folder: root, use }, async () => {
    const existing = await nearestExisting(root);
    if (existing === root) {
      await refuseOther(root, use);
    }
    await requireWritableFolder(existing);
  });
}

async function prepare(
  { root, folder, use }: Pick<Spool, "folder" | "use"> & { readonly root: string },
  isDead: (writer: string) => boolean,
): Promise<void> {
  await makeRoot(root);
  await refuseOther(root, use);
  await mkdir(folder, { mode: 0o700 });
  for (const name of await readdir(root)) {
    if (isDead(name)) {
      await rm(join(root, name), { recursive: true, force: true });
    }
  }
}

/** Node's own recursive `mkdir` reports ENOENT on a read-only file system, and repeats itself forever below /proc. */
async function makeRoot(path: string): Promise<void> {
  try {
    await makeFolder(path);
  } catch (error) {
    if (errnoOf(error) !== "ENOENT" || dirname(path) === path) {
      throw error;
    }
    await makeRoot(dirname(path));
    await makeFolder(path);
  }
}

async function makeFolder(path: string): Promise<void> {
  await mkdir(path, { mode: 0o700 }).catch(async (error: unknown) => {
    if (errnoOf(error) !== "EEXIST" || !(await stat(path)).isDirectory()) {
      throw error;
    }
  });
}

async function refuseOther(root: string, use: Spool["use"]): Promise<void> {
  const { uid } = await lstat(root);
  const own = process.getuid?.();
  if (own !== undefined && uid !== own && uid !== 0) {
    // The owner could replace what this process puts there. In a folder that all may write to, such as /tmp, an
    // attacker may have created it for that. Volumes of Kubernetes and Docker belong to root.
    throw new JobError("PERMISSION", `spooling to ${root}: it belongs to another user (${uid})`, {
      hint: `set ${keys[use].path} to another folder; a missing one is created`,
    });
  }
}

const keys = {
  in: { path: "input.spool.path", size: ", or lower input.spool.max_mb" },
  out: { path: "output.parquet.spool.path", size: " with space for two parts" },
  rows: { path: "TMPDIR", size: " with space for two spans" },
  keys: { path: "TMPDIR", size: " with space for the keys of all rows" },
  copies: { path: "TMPDIR", size: " with space for a row group" },
} as const;

/** What no retry changes. */
const codes: Readonly<Record<string, ErrorCode>> = {
  EACCES: "PERMISSION",
  EPERM: "PERMISSION",
  EROFS: "PERMISSION",
  EEXIST: "USAGE",
  ENOTDIR: "USAGE",
};

/** Runs `work`, and turns an error of the disk into a JobError that names the spool. @throws JobError PERMISSION, USAGE, DISK */
export async function withSpoolErrors<T>(
  { folder, use }: Pick<Spool, "folder" | "use">,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const errno = errnoOf(error);
    if (error instanceof JobError || errno === undefined || !/^E[A-Z0-9]+$/.test(errno)) {
      throw error;
    }
    const full = errno === "ENOSPC" || errno === "EDQUOT";
    const { path, size } = keys[use];
    const isFile = ["EEXIST", "ENOTDIR"].includes(errno);
    const fault = full
      ? "the disk is full"
      : isFile
        ? "it, or a folder above it, is a file"
        : "it cannot be written to";
    throw new JobError(codes[errno] ?? "DISK", `spooling to ${folder}: ${fault} (${errno})`, {
      hint: `set ${path} to another folder${full ? size : ""}`,
      cause: error,
    });
  }
}

/**
 * Returns the path itself, or the nearest one above it that exists. A symbolic link exists even if its target does not.
 * @throws system errors
 */
export async function nearestExisting(path: string): Promise<string> {
  const existing = await lstat(path).catch((error: unknown) => {
    if (errnoOf(error) !== "ENOENT") {
      throw error;
    }
    return undefined;
  });
  return existing === undefined && dirname(path) !== path ? await nearestExisting(dirname(path)) : path;
}

/** Checks that this user may make files in an existing folder. @throws system errors: ENOTDIR, EACCES, EROFS */
export async function requireWritableFolder(path: string): Promise<void> {
  if (!(await stat(path)).isDirectory()) {
    throw Object.assign(new Error(path), { code: "ENOTDIR" });
  }
  await access(path, constants.W_OK | constants.X_OK);
}

/** The writers of this process. It may have several jobs open at the same time, such as those of a backfill. */
const ownWriters = new Set<string>();

/** Returns a name that identifies this process among all processes on all machines. */
export function newWriter(): string {
  const writer = `${hostPart()}.${process.pid}.${randomBytes(4).toString("hex")}`;
  ownWriters.add(writer);
  return writer;
}

function hostPart(): string {
  return hostname().replaceAll(/[^A-Za-z0-9-]/g, "_");
}

/**
 * Whether a process has ended. Known for processes of this host only; one with our own pid that is not this process is
 * of an earlier container.
 * @param name begins with the name of a writer
 */
export function isDeadWriter(name: string): boolean {
  const [otherHost, pidText, random] = name.split(".");
  if (ownWriters.has(`${otherHost}.${pidText}.${random}`)) {
    return false;
  }
  const pid = Number(pidText);
  if (otherHost !== hostPart() || !Number.isSafeInteger(pid) || pid <= 0) {
    return false;
  }
  if (pid === process.pid) {
    return true;
  }
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return errnoOf(error) === "ESRCH";
  }
}
