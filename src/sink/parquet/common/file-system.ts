import { createHash } from "node:crypto";
import { constants, createReadStream } from "node:fs";
import { link, mkdir, open, readdir, readFile, rename, rm, stat, unlink } from "node:fs/promises";
import { errnoOf, JobError, messageOf } from "../../../util/errors.js";

/** The calls that read the state of a target, on a disk or in S3. They fail with ENOENT for what does not exist. */
export interface TargetState {
  readdir(path: string): Promise<string[]>;
  readText(path: string): Promise<string>;
  sizeOf(path: string): Promise<number>;
  /** A text that changes when another file takes the name, or this file is written to. */
  identityOf(path: string): Promise<string>;
  /** Reads a whole file: its length, and its sha256 in hex. */
  digest(path: string): Promise<{ sizeBytes: number; sha256: string }>;
  /** Sizes of all files in a folder, by name. Offered only where that costs less than a call for each file. */
  sizesIn?(folder: string): Promise<ReadonlyMap<string, number>>;
}

/**
 * The calls that publish on a disk. Tests pass in file systems that lose what was not synced, cut a write short or fail
 * the n-th call.
 */
export interface FileSystem extends TargetState {
  mkdir(path: string): Promise<void>;
  /** Creates or empties a file and writes all of `text`. Not durable before `sync`. */
  writeText(path: string, text: string): Promise<void>;
  /** Adds text to the end of a file. Fails with ENOENT where there is none. Not durable before `sync`. */
  appendText(path: string, text: string): Promise<void>;
  /** Flushes a file or a folder to the disk. */
  sync(path: string): Promise<void>;
  /** Gives a file a second name. Fails with EEXIST where `to` exists: so the first writer wins. */
  link(from: string, to: string): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  unlink(path: string): Promise<void>;
  removeFolder(path: string): Promise<void>;
}

/** The result of a call on a file or folder; undefined where that does not exist. */
export async function ifThere<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (errnoOf(error) === "ENOENT") {
      return undefined;
    }
    throw error;
  }
}

/** Errors of a disk for a path that this user may not read, or that is not the expected kind of file. */
const unreadable: ReadonlySet<string | undefined> = new Set(["EACCES", "EPERM", "ENOTDIR", "EISDIR", "ELOOP"]);

/**
 * Returns the result of a call on a file or folder of another run; undefined if it does not exist or this user may not
 * read it. A failure of the disk or the store is thrown.
 */
export async function ifReadable<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await ifThere(call);
  } catch (error) {
    if (isDenied(error) || unreadable.has(errnoOf(error))) {
      return undefined;
    }
    throw error;
  }
}

/**
 * The same where nothing may be overlooked.
 * @throws JobError PERMISSION if this user may not read it
 */
export async function ifPermitted<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await ifThere(call);
  } catch (error) {
    if (isDenied(error)) {
      throw new JobError("PERMISSION", `looking for the runs of the job: ${messageOf(error)}`, {
        hint: "run the command as a user who may read all folders that may have runs of the job",
        cause: error,
      });
    }
    if (unreadable.has(errnoOf(error))) {
      return undefined;
    }
    throw error;
  }
}

function isDenied(error: unknown): boolean {
  return error instanceof JobError ? error.code === "PERMISSION" : ["EACCES", "EPERM"].includes(errnoOf(error) ?? "");
}

/** The names in a folder; none where it does not exist. */
export async function listFolder(fs: TargetState, folder: string): Promise<string[]> {
  return (await ifThere(fs.readdir(folder))) ?? [];
}

async function writeInto(path: string, flags: string | number, text: string): Promise<void> {
  const file = await open(path, flags);
  try {
    await file.writeFile(text, "utf8");
  } finally {
    await file.close();
  }
}

export const nodeFileSystem: FileSystem = {
  async mkdir(path) {
    await mkdir(path);
  },
  readdir: (path) => readdir(path),
  readText: (path) => readFile(path, "utf8"),
  writeText: (path, text) => writeInto(path, "w", text),
  appendText: (path, text) => writeInto(path, constants.O_WRONLY | constants.O_APPEND, text),
  async sizeOf(path) {
    return (await stat(path)).size;
  },
  async identityOf(path) {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(path, { bigint: true });
    return [dev, ino, size, mtimeNs, ctimeNs].join(":");
  },
  async digest(path) {
    const hash = createHash("sha256");
    let sizeBytes = 0;
    for await (const piece of createReadStream(path, { highWaterMark: 1 << 20 }) as AsyncIterable<Buffer>) {
      hash.update(piece);
      sizeBytes += piece.length;
    }
    return { sizeBytes, sha256: hash.digest("hex") };
  },
  async sync(path) {
    const file = await open(path, "r");
    try {
      await file.sync();
    } finally {
      await file.close();
    }
  },
  link: (from, to) => link(from, to),
  rename: (from, to) => rename(from, to),
  unlink: (path) => unlink(path),
  removeFolder: (path) => rm(path, { recursive: true, force: true }),
};
