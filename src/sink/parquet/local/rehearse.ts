import { nearestExisting } from "../../../util/spool.js";
import { access, constants, lstat, stat, statfs } from "node:fs/promises";
import { join } from "node:path";
import { outputColumns } from "../../../binding/contract.js";
import { outputRowBytes } from "../../../binding/row-bytes.js";
import type { Plan } from "../../../plan/plan.js";
import { errnoOf, JobError } from "../../../util/errors.js";
import { showBytes } from "../../../util/memory-budget.js";
import { ifThere } from "../common/file-system.js";
import { type Layout, plannedLayout } from "../common/layout.js";
import { guarded, refuseLinks } from "./durable.js";

const ownFolder = "choose another output.parquet.path";

/**
 * Checks that a run can write to its output folder: to the folder, or the nearest one above it that exists, and to the
 * folders in it. Returns the checks that were not carried out, a line each.
 * @throws JobError PERMISSION, OUTPUT_FOREIGN
 */
export async function rehearse(folder: string, plan: Plan): Promise<readonly string[]> {
  const layout = plannedLayout(folder, plan);
  return await guarded(`checking ${folder}`, async () => {
    const existing = await nearestExisting(folder);
    await requireWritable(folder, existing);
    await refuseLinks(layout);
    await requireOwnFolders(layout);
    await requireKinds(folder);
    await requireReplaceable(layout);
    return [
      ...(await tightSpace(existing, plan)),
      ...(await unwritableRejects(layout)),
      "hard links and quotas of the disk",
    ];
  });
}

async function tightSpace(existing: string, { contract, input }: Plan): Promise<string[]> {
  const { bavail, bsize, files, ffree } = await statfs(existing);
  const free = bavail * bsize;
  const needed = input.rows * outputRowBytes(contract);
  const columns = outputColumns(contract).length;
  return [
    ...(needed + smallFilesBytes > free
      ? [
          `whether the predictions fit: ${existing} has ${showBytes(free)} free, and ${columns} columns may take ${showBytes(needed)} before compression`,
        ]
      : []),
    // Some file systems have no limit, and say 0 of 0.
    ...(files > 0 && ffree < smallFiles ? [`whether the files fit: ${existing} can take ${ffree} more files`] : []),
  ];
}

/** What a run writes besides the predictions: its plan, manifest and profile, and the folders for these. */
const smallFilesBytes = 64 * 1024;
const smallFiles = 16;

/** @throws JobError PERMISSION, OUTPUT_FOREIGN */
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

function danglingLink(folder: string, path: string): JobError {
  return new JobError("OUTPUT_FOREIGN", `checking ${folder}: ${path} is a symbolic link whose target does not exist`, {
    hint: `make the folder that the link names, remove the link, or ${ownFolder}`,
  });
}

/**
 * Returns the error to end with where a folder of the output could not be made: no retry helps if a symbolic link
 * has no target. Else returns `error`.
 */
export async function danglingLinkOr(error: unknown, { folder }: Layout): Promise<unknown> {
  const isLink = errnoOf(error) === "ENOENT" && (await ifThere(lstat(folder)))?.isSymbolicLink() === true;
  return isLink && (await ifThere(stat(folder))) === undefined ? danglingLink(folder, folder) : error;
}

/** Whether this user may make files in a folder. @throws system errors */
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

/** Checks the folders in the output folder that the run works in, as far as they are there. */
async function requireOwnFolders({ folder, runs, control, temporary, parts, staged }: Layout): Promise<void> {
  for (const path of [runs, control, temporary, ...(staged ? [parts] : [])]) {
    if ((await ifThere(lstat(path))) !== undefined) {
      await requireWritable(folder, path);
    }
  }
}

/** What a run writes into the folder besides its parts, and whether that is a folder. */
const written = { _rejects: true, _SUCCESS: false, "_manifest.json": false } as const;

/** Checks that no folder is in the place of a file that a run writes, and no file in that of a folder. */
async function requireKinds(folder: string): Promise<void> {
  for (const [name, isFolder] of Object.entries(written)) {
    const found = await stat(join(folder, name)).catch(() => undefined);
    if (found !== undefined && found.isDirectory() !== isFolder) {
      throw new JobError("OUTPUT_FOREIGN", `checking ${folder}: ${name} is not a ${isFolder ? "folder" : "file"}`, {
        hint: `remove it, or ${ownFolder}`,
      });
    }
  }
}

const sticky = 0o1000;

/** In a folder with the sticky bit, such as /tmp, only the owner of a file may replace it. @throws JobError PERMISSION */
async function requireReplaceable({ folder, success, manifest }: Layout): Promise<void> {
  const user = process.getuid?.();
  const found = await ifThere(stat(folder));
  if (!user || found === undefined || found.uid === user || (found.mode & sticky) === 0) {
    return;
  }
  for (const path of [success, manifest]) {
    const file = await ifThere(lstat(path));
    if (file !== undefined && file.uid !== user) {
      throw new JobError("PERMISSION", `checking ${folder}: this user may not replace ${path}`, {
        hint: `the folder has the sticky bit, and another user (${file.uid}) owns the file: remove it, or ${ownFolder}`,
      });
    }
  }
}

/** A run without rejected rows does not write there. */
async function unwritableRejects({ rejects }: Layout): Promise<string[]> {
  const found = await ifThere(stat(rejects));
  return found === undefined || (await mayWriteTo(rejects))
    ? []
    : [`rejected rows: this user may not write to ${rejects}`];
}
