import { lstat, mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf, JobError } from "../errors.js";

export interface SpoolOptions {
  /** Holds a folder for each process; made where it is not there. */
  readonly root: string;
  /** Names this process among all on all machines. */
  readonly writer: string;
  /** Another one for each spool of a process. */
  readonly use: "in" | "out";
  readonly isDead: (writer: string) => boolean;
  /** Bytes of one file at most, and of all that are under way together. */
  readonly maxBytes: number;
}

/** A folder for files that hold what is fetched until it is read, or written until it is sent; gone when it is closed. */
export interface Spool extends AsyncDisposable {
  readonly folder: string;
  readonly maxBytes: number;
  /** Makes the folder, once; removes what processes left that are dead. */
  ready(): Promise<void>;
  /** An unused name in it. */
  newPath(): string;
}

export function openSpool({ root, writer, use, isDead, maxBytes }: SpoolOptions): Spool {
  const folder = join(root, `${writer}.${use}`);
  // This process may have several; one that had its number before is dead.
  const isOwn = (name: string): boolean => name.startsWith(`${writer}.`);
  let files = 0;
  let made: Promise<void> | undefined;
  return {
    folder,
    maxBytes,
    ready: () => (made ??= spooling(root, () => prepare(root, folder, (name) => !isOwn(name) && isDead(name)))),
    newPath() {
      files += 1;
      return join(folder, `${files}.spool`); // no name is the beginning of another
    },
    async [Symbol.asyncDispose]() {
      if (made !== undefined) {
        await rm(folder, { recursive: true, force: true });
      }
    },
  };
}

async function prepare(root: string, folder: string, isDead: (writer: string) => boolean): Promise<void> {
  await mkdir(root, { recursive: true, mode: 0o700 });
  const { uid } = await lstat(root);
  const own = process.getuid?.();
  if (own !== undefined && uid !== own && own !== 0) {
    // In a folder that all may write to, such as /tmp, somebody else may have made it to look at what is put there.
    throw new JobError("PERMISSION", `spooling to ${root}: it belongs to another user (${uid})`, {
      hint: "spool.path names another folder",
    });
  }
  await mkdir(folder, { mode: 0o700 });
  for (const name of await readdir(root)) {
    if (isDead(name)) {
      await rm(join(root, name), { recursive: true, force: true });
    }
  }
}

/** Does `work`; what the disk says is told with what it was wanted for. */
export async function spooling<T>(root: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const errno = errnoOf(error);
    if (error instanceof JobError || errno === undefined || !/^E[A-Z0-9]+$/.test(errno)) {
      throw error;
    }
    const full = errno === "ENOSPC" || errno === "EDQUOT";
    throw new JobError(
      ["EACCES", "EPERM", "EROFS"].includes(errno) ? "PERMISSION" : "DISK",
      `spooling to ${root}: ${full ? "the disk is full" : "it cannot be written to"} (${errno})`,
      { hint: "spool.path names another folder, input.spool.max_mb how much may be there", cause: error },
    );
  }
}
