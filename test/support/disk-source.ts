import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { JobError } from "#src/base/errors.js";
import { diskSource, type WalkFileSystem } from "#src/sources/disk.js";
import type { Listing } from "#src/sources/source.js";

/** Writes files, each with its own name in it. */
export async function put(folder: string, ...files: readonly string[]): Promise<void> {
  for (const file of files) {
    await mkdir(dirname(join(folder, file)), { recursive: true });
    await writeFile(join(folder, file), file);
  }
}

export async function listDisk(
  folder: string,
  patterns: readonly string[],
  fileSystem?: WalkFileSystem,
): Promise<Listing> {
  const source = diskSource({ folder, output: undefined, ...(fileSystem === undefined ? {} : { fileSystem }) });
  return await source.list(patterns);
}

export async function listed(folder: string, pattern: string): Promise<string[]> {
  return (await listDisk(folder, [pattern])).shards.map(({ uri }) => uri);
}

export async function refusal(work: () => Promise<unknown>): Promise<Pick<JobError, "code" | "exitCode" | "message">> {
  const error: unknown = await work().catch((refused: unknown) => refused);
  if (!(error instanceof JobError)) {
    throw new Error("nothing was refused", { cause: error });
  }
  return { code: error.code, exitCode: error.exitCode, message: error.message };
}
