import { lstat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { type ErrorCode, errnoOf, JobError } from "../../../util/errors.js";
import { type FileSystem, ifThere } from "../common/file-system.js";
import type { Layout } from "../common/layout.js";

/**
 * Gives a complete file its final name, unless that name exists. The file's bytes are flushed before the name exists,
 * and the name is flushed before this returns: temporary file → fsync → link → fsync of the folder. The temporary name
 * goes last.
 */
export async function publish(fs: FileSystem, temporary: string, final: string): Promise<"published" | "exists"> {
  await fs.sync(temporary);
  const outcome = await linkOrRename(fs, temporary, final);
  await fs.sync(dirname(final)); // also if the file exists: the attempt that made it may have died before it flushed the folder
  if (outcome !== "renamed") {
    await fs.unlink(temporary);
  }
  return outcome === "exists" ? "exists" : "published";
}

/** Errors of `link` on a file system without hard links. */
const noHardLinks: ReadonlySet<string | undefined> = new Set(["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK"]);

/** Gives a file a second name, unless that exists. Without hard links, it renames the file. */
export async function linkOrRename(
  fs: FileSystem,
  temporary: string,
  final: string,
): Promise<"linked" | "renamed" | "exists"> {
  try {
    await fs.link(temporary, final);
    return "linked";
  } catch (error) {
    if (errnoOf(error) === "EEXIST") {
      return "exists";
    }
    if (!noHardLinks.has(errnoOf(error))) {
      throw error;
    }
  }
  // A check and a rename are two steps: safe for one worker only, of which users are warned.
  if ((await ifThere(fs.identityOf(final))) !== undefined) {
    return "exists";
  }
  await fs.rename(temporary, final);
  return "renamed";
}

/** Creates a small file under a free final name, atomically. */
export async function createDurably(
  fs: FileSystem,
  { temporary, final, text }: { temporary: string; final: string; text: string },
): Promise<"published" | "exists"> {
  return await orRemove(fs, temporary, async () => {
    await fs.writeText(temporary, text);
    return await publish(fs, temporary, final);
  });
}

export interface Replacement {
  readonly temporary: string;
  readonly final: string;
  readonly text: string;
  /**
   * Throws when the file must no longer be published. Called when the temporary file is there: see `withFolders`.
   */
  readonly check: () => Promise<unknown>;
}

/** Replaces a small file atomically: readers see the old one or the new one. */
export async function replaceDurably(fs: FileSystem, { temporary, final, text, check }: Replacement): Promise<void> {
  await orRemove(fs, temporary, async () => {
    await fs.writeText(temporary, text);
    await fs.sync(temporary);
    await check();
    await fs.rename(temporary, final);
    await fs.sync(dirname(final));
  });
}

/**
 * Runs `work`, which writes a temporary file, and removes the file when that fails. On a full disk each attempt would
 * otherwise leave one more, and files of attempts on other hosts stay until the run is finished.
 */
export async function orRemove<T>(fs: FileSystem, temporary: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    await fs.unlink(temporary).catch(() => undefined); // it is gone already, or the disk fails altogether
    throw error;
  }
}

/** Makes a folder unless it exists. Does not flush its name. */
export async function ensureFolder(fs: FileSystem, path: string): Promise<void> {
  await fs.mkdir(path).catch((error: unknown) => {
    if (errnoOf(error) !== "EEXIST") {
      throw error;
    }
  });
}

/**
 * Makes a folder and those above it, and flushes each new name. Does nothing where the folder exists: the next write
 * into its parent flushes its name, too.
 */
export async function makeFolder(fs: FileSystem, path: string): Promise<void> {
  const parent = dirname(path);
  try {
    await fs.mkdir(path);
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === "EEXIST") {
      return;
    }
    if (errno !== "ENOENT" || parent === path) {
      throw error;
    }
    await makeFolder(fs, parent);
    await ensureFolder(fs, path);
    await fs.sync(parent);
    return;
  }
  await fs.sync(parent);
  await fs.sync(dirname(parent)).catch((error: unknown) => {
    // The process that made the parent may have died before it flushed the name. A folder that we may not open was made
    // by another user.
    if (errnoOf(error) !== "EACCES") {
      throw error;
    }
  });
}

/**
 * Refuses an output folder whose folder of runs, or of this run, is a symbolic link: whoever can place one would have a
 * run write elsewhere. @throws JobError OUTPUT_FOREIGN
 */
export async function refuseLinks(layout: Layout): Promise<void> {
  const { folder, runs, control, temporary, answers, parts, rejects } = layout;
  for (const path of [runs, control, temporary, answers, rejects, ...(parts === folder ? [] : [parts])]) {
    if ((await ifThere(lstat(path)))?.isSymbolicLink() === true) {
      throw new JobError("OUTPUT_FOREIGN", `checking ${folder}: ${path} is a symbolic link`, {
        hint: "nothing is written through it: move the folder that it names to its place, remove the link, or choose another output.parquet.path",
      });
    }
  }
}

/** Makes the folder of a run. @throws JobError OUTPUT_FOREIGN for a link in its place */
export async function makeRunFolder(fs: FileSystem, layout: Layout): Promise<void> {
  await refuseLinks(layout);
  await makeFolder(fs, layout.control);
}

/** Whether `folder` can hold hard links, which atomic publishing depends on. */
export async function hasHardLinks(fs: FileSystem, folder: string, writer: string): Promise<boolean> {
  const from = join(folder, `probe.${writer}`);
  const to = join(folder, `probe-link.${writer}`);
  await fs.writeText(from, "");
  try {
    await fs.link(from, to);
    await fs.unlink(to);
    return true;
  } catch (error) {
    if (noHardLinks.has(errnoOf(error))) {
      return false;
    }
    throw error;
  } finally {
    await fs.unlink(from);
  }
}

/** Errors of a disk, by errno. Hints for `DISK` hold for any file, others for the target. */
export const diskErrors: Readonly<Record<string, { code: ErrorCode; found: string; hint: string }>> = {
  ENOSPC: {
    code: "DISK",
    found: "the disk is full",
    hint: "free some space, then run the same command again",
  },
  EDQUOT: {
    code: "DISK",
    found: "the disk quota is used up",
    hint: "free some space, then run the same command again",
  },
  EIO: {
    code: "DISK",
    found: "the disk reports an input/output error",
    hint: "check the disk, then run the same command again",
  },
  EROFS: { code: "PERMISSION", found: "the file system is read-only", hint: "choose another output.parquet.path" },
  EACCES: {
    code: "PERMISSION",
    found: "permission denied",
    hint: "let this user write there, or choose another output.parquet.path",
  },
  EPERM: {
    code: "PERMISSION",
    found: "operation not permitted",
    hint: "let this user write there, or choose another output.parquet.path",
  },
  ENAMETOOLONG: {
    code: "OUTPUT_FOREIGN",
    found: "the name is too long",
    hint: "choose a shorter output.parquet.path",
  },
  ELOOP: {
    code: "OUTPUT_FOREIGN",
    found: "its links lead in a circle",
    hint: "choose another output.parquet.path",
  },
  ENOTDIR: {
    code: "OUTPUT_FOREIGN",
    found: "it, or a folder above it, is a file",
    hint: "choose another output.parquet.path",
  },
  EISDIR: {
    code: "OUTPUT_FOREIGN",
    found: "a folder has the name of a file that a run writes, such as _SUCCESS or _manifest.json",
    hint: "remove this folder, or choose another output.parquet.path",
  },
};

/** Runs `work`; an error of the disk is reported with the act, `doing`. */
export async function guarded<T>(doing: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw diskError(doing, error);
  }
}

/** The JobError for a call on the target that failed. */
function diskError(doing: string, error: unknown): JobError {
  if (error instanceof JobError) {
    return error;
  }
  const errno = errnoOf(error);
  const known = errno === undefined ? undefined : diskErrors[errno];
  if (known !== undefined) {
    const hint = known.code === "DISK" ? `${known.hint}; committed spans are kept` : known.hint;
    return new JobError(known.code, `${doing}: ${known.found} (${errno})`, { hint, cause: error });
  }
  return new JobError("DISK", `${doing}: ${error instanceof Error ? error.message : String(error)}`, {
    hint: "run the same command again; committed spans are kept",
    cause: error,
  });
}
