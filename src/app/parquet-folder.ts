import { readdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { DiffSide } from "../run/diff.js";
import { JobError } from "../util/errors.js";
import { fileError } from "./reading/given-files.js";

/** Finds the Parquet files directly in a folder. @throws JobError FILE_MISSING, USAGE where there is none */
export async function parquetFolder(given: string): Promise<DiffSide> {
  const folder = resolve(given);
  const names = await readdir(folder).catch((cause: unknown) => {
    throw fileError(`reading ${given}`, cause, "name a folder with Parquet files that this user can read");
  });
  const paths = names.filter((name) => name.endsWith(".parquet")).map((name) => join(folder, name));
  if (paths.length === 0) {
    throw new JobError("USAGE", `reading ${given}: no file in it ends in .parquet`);
  }
  return { name: given, rows: { folder, groups: oneGroup(paths) } };
}

async function* oneGroup(paths: readonly string[]): AsyncGenerator<readonly string[]> {
  yield await Promise.resolve(paths);
}
