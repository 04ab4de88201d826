import { lstat, mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf, JobError } from "../util/errors.js";

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
  readonly use: SpoolOptions["use"];
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
    use,
    maxBytes,
    ready: () =>
      (made ??= spooling({ folder: root, use }, async () => {
        await prepare({ root, folder, use }, (name) => !isOwn(name) && isDead(name));
      })),
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

async function prepare(
  { root, folder, use }: Pick<Spool, "folder" | "use"> & { readonly root: string },
  isDead: (writer: string) => boolean,
): Promise<void> {
  await mkdir(root, { recursive: true, mode: 0o700 });
  const { uid } = await lstat(root);
  const own = process.getuid?.();
  if (own !== undefined && uid !== own && uid !== 0) {
    // Its owner may rename what this process makes there, and put something else in its place: in a folder that all
    // may write to, such as /tmp, somebody may have made it for that. Volumes of Kubernetes and Docker are root's.
    throw new JobError("PERMISSION", `spooling to ${root}: it belongs to another user (${uid})`, {
      hint: `${keys[use].path} names another folder; one that is not there yet is made`,
    });
  }
  await mkdir(folder, { mode: 0o700 });
  for (const name of await readdir(root)) {
    if (isDead(name)) {
      await rm(join(root, name), { recursive: true, force: true });
    }
  }
}

/** Keys of the spec that a spool's folder, and what it holds, come from. */
const keys = {
  in: { path: "input.spool.path", size: ", input.spool.max_mb how much may be there" },
  out: { path: "output.parquet.spool.path", size: ", with room for two parts" },
} as const;

/** Does `work`; what the disk says is told with what it was wanted for. */
export async function spooling<T>({ folder, use }: Pick<Spool, "folder" | "use">, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const errno = errnoOf(error);
    if (error instanceof JobError || errno === undefined || !/^E[A-Z0-9]+$/.test(errno)) {
      throw error;
    }
    const full = errno === "ENOSPC" || errno === "EDQUOT";
    const { path, size } = keys[use];
    throw new JobError(
      ["EACCES", "EPERM", "EROFS"].includes(errno) ? "PERMISSION" : "DISK",
      `spooling to ${folder}: ${full ? "the disk is full" : "it cannot be written to"} (${errno})`,
      { hint: `${path} names another folder${full ? size : ""}`, cause: error },
    );
  }
}
