import { access, constants, stat, statfs } from "node:fs/promises";
import { dirname, join } from "node:path";
import { outputColumns } from "../../../binding/contract.js";
import { outputRowBytes } from "../../../binding/row-bytes.js";
import type { Plan } from "../../../plan/plan.js";
import { errnoOf, JobError } from "../../../util/errors.js";
import { showBytes } from "../../../util/memory-budget.js";

/**
 * Checks that a folder, or the nearest one above it that exists, can be written to. Returns the checks that were not
 * carried out, a line each.
 * @throws JobError PERMISSION, OUTPUT_FOREIGN
 */
export async function rehearse(folder: string, { contract, input }: Plan): Promise<readonly string[]> {
  const existing = await nearest(folder);
  try {
    await access(existing, constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw new JobError("PERMISSION", `checking ${folder}: this user may not write to ${existing}`, {
      hint: "grant write permission, or choose another output.parquet.path",
      cause,
    });
  }
  await requireKinds(folder);
  const { bavail, bsize } = await statfs(existing);
  const needed = input.rows * outputRowBytes(contract);
  const columns = outputColumns(contract).length;
  const tight =
    needed > bavail * bsize
      ? [
          `whether the predictions fit: ${existing} has ${showBytes(bavail * bsize)} free, and ${columns} columns may take ${showBytes(needed)} before compression`,
        ]
      : [];
  return [...tight, "hard links and quotas of the disk"];
}

/** What a run writes into the folder besides its parts, and whether that is a folder. */
const written = { _rejects: true, _SUCCESS: false, "_manifest.json": false } as const;

/** Checks that no folder is in the place of a file that a run writes, and no file in that of a folder. */
async function requireKinds(folder: string): Promise<void> {
  for (const [name, isFolder] of Object.entries(written)) {
    const found = await stat(join(folder, name)).catch(() => undefined);
    if (found !== undefined && found.isDirectory() !== isFolder) {
      throw new JobError("OUTPUT_FOREIGN", `checking ${folder}: ${name} is not a ${isFolder ? "folder" : "file"}`, {
        hint: "remove it, or choose another output.parquet.path",
      });
    }
  }
}

/**
 * Returns the nearest existing folder: the folder itself or one above it.
 * @throws JobError OUTPUT_FOREIGN if the path is not a folder
 */
async function nearest(folder: string): Promise<string> {
  try {
    if (!(await stat(folder)).isDirectory()) {
      throw new JobError("OUTPUT_FOREIGN", `checking ${folder}: it is not a folder`, {
        hint: "output.parquet.path must be a folder of its own",
      });
    }
    return folder;
  } catch (error) {
    if (errnoOf(error) === "ENOENT" && dirname(folder) !== folder) {
      return await nearest(dirname(folder));
    }
    throw error instanceof JobError
      ? error
      : new JobError("PERMISSION", `checking ${folder}: ${errnoOf(error) ?? "it cannot be read"}`, {
          hint: "this user must be able to read the folders above it",
          cause: error,
        });
  }
}
