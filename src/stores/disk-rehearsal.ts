import { access, constants, lstat, stat, statfs } from "node:fs/promises";
import { join } from "node:path";
import { nearestExisting } from "../base/spool.js";
import { JobError, errnoOf } from "../base/errors.js";
import { showBytes } from "../base/shown-numbers.js";
import { atDisk, danglingLink, ifThere, refuseLinks } from "./disk.js";

const ownFolder = "choose another output.parquet.path";

/** What a run would write into a folder. */
export interface DiskPlan {
  readonly folder: string;
  /** Folders below it that the run works in, some of which exist. */
  readonly working: readonly string[];
  /** Names in it that are folders, or files. */
  readonly folders: readonly string[];
  readonly files: readonly string[];
  /** What the predictions take before compression, and of how many columns they are. */
  readonly bytes: number;
  readonly columns: number;
}

/**
 * Checks that a run can write to its output folder: to the folder, or the nearest one above it that exists, and to the
 * folders in it. Returns the checks that were not carried out, a line each.
 * @throws JobError PERMISSION, OUTPUT_FOREIGN
 */
export async function rehearse(plan: DiskPlan): Promise<readonly string[]> {
  const { folder, working } = plan;
  return await atDisk(`checking ${folder}`, async () => {
    const existing = await nearestExisting(folder);
    await requireWritable(folder, existing);
    for (const path of working) {
      await refuseLinks(folder, path);
      if ((await ifThere(lstat(path))) !== undefined) {
        await requireWritable(folder, path);
      }
    }
    await requireKinds(plan);
    return [
      ...(await tightSpace(existing, plan)),
      ...(await unwritableFolders(plan)),
      "hard links and quotas of the disk",
    ];
  });
}

async function tightSpace(existing: string, { bytes, columns }: DiskPlan): Promise<string[]> {
  const { bavail, bsize, files, ffree } = await statfs(existing);
  const free = bavail * bsize;
  return [
    ...(bytes + smallFilesBytes > free
      ? [
          `whether the predictions fit: ${existing} has ${showBytes(free)} free, and ${columns} columns may take ${showBytes(bytes)} before compression`,
        ]
      : []),
    // Some file systems have no limit, and say 0 of 0.
    ...(files > 0 && ffree < smallFiles ? [`whether the files fit: ${existing} can take ${ffree} more files`] : []),
  ];
}

/** What a run writes besides the predictions: its plan, manifest and profile, and the folders for these. */
const smallFilesBytes = 64 * 1024;
const smallFiles = 16;

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
  if (!(await mayWriteTo(path))) {
    throw new JobError("PERMISSION", `checking ${folder}: this user may not write to ${path}`, {
      hint: `grant that permission, or ${ownFolder}`,
    });
  }
}

async function mayWriteTo(path: string): Promise<boolean> {
  try {
    await access(path, constants.W_OK | constants.X_OK);
    return true;
  } catch (error) {
    if (["EACCES", "EPERM", "EROFS"].includes(errnoOf(error) ?? "")) {
      return false;
    }
    throw error;
  }
}

async function requireKinds({ folder, folders, files }: DiskPlan): Promise<void> {
  for (const name of [...folders, ...files]) {
    const isFolder = folders.includes(name);
    const found = await stat(join(folder, name)).catch(() => undefined);
    if (found !== undefined && found.isDirectory() !== isFolder) {
      throw new JobError("OUTPUT_FOREIGN", `checking ${folder}: ${name} is not a ${isFolder ? "folder" : "file"}`, {
        hint: `remove it, or ${ownFolder}`,
      });
    }
  }
}

/** A run without rejected rows does not write there. */
async function unwritableFolders({ folder, folders }: DiskPlan): Promise<string[]> {
  const lines: string[] = [];
  for (const path of folders.map((name) => join(folder, name))) {
    if ((await ifThere(stat(path))) !== undefined && !(await mayWriteTo(path))) {
      lines.push(`rejected rows: this user may not write to ${path}`);
    }
  }
  return lines;
}
