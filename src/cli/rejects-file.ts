import { open } from "node:fs/promises";
import type { RejectedRow } from "../columnar/types.js";
import { fileError } from "../app/reading/given-files.js";

/** Writes rejected rows, one line of JSON each. */
export interface RejectsFile extends AsyncDisposable {
  write(rows: readonly RejectedRow[]): Promise<void>;
}

/** Creates or replaces a file for rejected rows. @throws JobError DISK, PERMISSION, FILE_MISSING */
export async function openRejectsFile(path: string): Promise<RejectsFile> {
  const file = await withFileError(path, () => open(path, "w"));
  return {
    write: (rows) => withFileError(path, () => file.appendFile(rows.map((row) => `${JSON.stringify(row)}\n`).join(""))),
    [Symbol.asyncDispose]: () => file.close(),
  };
}

async function withFileError<T>(path: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    throw fileError(`writing rejected rows to ${path}`, error, "--rejects names a file that this user can write");
  }
}
