import { access, constants, lstat, stat, statfs } from "node:fs/promises";
import { nearestExisting } from "../base/spool.js";
import { JobError, errnoOf } from "../base/errors.js";
import { showBytes } from "../base/shown-numbers.js";
import { atDisk, danglingLink, ifThere, refuseLinks } from "./disk.js";

/** What a run would write into a folder. */
export interface DiskPlan {
  readonly folder: string;
  /** Folders below it that the run works in, some of which exist. */
  readonly working: readonly string[];
  /** What the predictions take before compression, and of how many columns they are. */
  readonly bytes: number;
  readonly columns: number;
}

/**
 * Checks that a run can write to its output folder: to the folder, or the nearest one above it that exists, and to the
 * folders in it. Returns the checks that were not carried out, a line each.
 * @throws JobError PERMISSION, OUTPUT_FOREIGN
 */
export async function rehearseOnDisk({ folder, working, bytes, columns }: DiskPlan): Promise<readonly string[]> {
  return await atDisk(`checking ${folder}`, async () => {
    const existing = await nearestExisting(folder);
    await requireWritable(folder, existing);
    for (const path of working) {
      await refuseLinks(folder, path);
      if ((await ifThere(lstat(path))) !== undefined) {
        await requireWritable(folder, path);
      }
    }

    const { bavail, bsize } = await statfs(existing);
    const free = bavail * bsize;
    const tight = `whether the predictions fit: ${existing} has ${showBytes(free)} free, and ${columns} columns may take ${showBytes(bytes)} before compression`;
    return [...(bytes > free ? [tight] : []), "hard links and quotas of the disk"];
  });
}

async function requireWritable(folder: string, path: string): Promise<void> {
  const found = await ifThere(stat(path));
  if (found === undefined) {
    throw danglingLink(folder, path);
  }
  if (!found.isDirectory()) {
    const what = path === folder ? "it" : path;
    throw new JobError("OUTPUT_FOREIGN", `checking ${folder}: ${what} is not a folder`, {
      hint: "output.parquet.path must be a folder of its own",
    });
  }
  await access(path, constants.W_OK | constants.X_OK).catch((cause: unknown) => {
    if (!["EACCES", "EPERM", "EROFS"].includes(errnoOf(cause) ?? "")) {
      throw cause;
    }
    throw new JobError("PERMISSION", `checking ${folder}: this user may not write to ${path}`, {
      hint: "grant that permission, or choose another output.parquet.path",
      cause,
    });
  });
}
