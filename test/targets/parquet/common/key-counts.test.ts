import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openDuckDb } from "#src/duckdb/instance.js";
import { countKeysIn, type OpenKeyDuckDb } from "#src/targets/parquet/sink.js";
import { scratch } from "../../../support/job.js";
import { writeRows } from "../../../support/parquet.js";

/** A DuckDB of few megabytes, with or without a folder for what does not fit. */
function smallDuckDb(folder: string, spillFolder?: string): OpenKeyDuckDb {
  return async () => {
    const memoryBytes = 24 * 1024 * 1024;
    const duckdb = await openDuckDb({ threads: 1, memoryBytes, spillFolder, allowed: { folders: [folder] } });
    return {
      connect: () => duckdb.connect(),
      [Symbol.asyncDispose]: () => {
        duckdb[Symbol.dispose]();
        return Promise.resolve();
      },
    };
  };
}

async function* groupsOf(...groups: string[][]): AsyncGenerator<string[]> {
  await Promise.resolve();
  yield* groups;
}

test("repeated keys are counted exactly over groups of parts, by all columns of the key", async () => {
  const [one, other] = [join(scratch.path, "1.staged"), join(scratch.path, "2.staged")];
  await writeRows(one, "SELECT * FROM (VALUES (1, 'a'), (1, 'b'), (NULL, 'a'), (2, NULL)) t(i, s)");
  await writeRows(other, "SELECT * FROM (VALUES (1, 'b'), (1, 'b'), (3, 'c'), (NULL, 'a')) t(i, s)");
  const counts = await countKeysIn(smallDuckDb(scratch.path), ["i", "s"], groupsOf([one], [other]));
  expect(counts).toEqual({ repeated: 2, nulls: 3, examples: ["1, b"] });
  expect(await countKeysIn(smallDuckDb(scratch.path), ["i"], groupsOf())).toMatchObject({ repeated: 0, nulls: 0 });
});

test("keys that do not fit in memory go to the spill folder, and without one the count fails", async () => {
  const part = join(scratch.path, "part.staged");
  await writeRows(part, "SELECT md5((i % 499_999)::VARCHAR) AS key FROM range(500_000) t(i)", "COMPRESSION zstd");
  const spill = join(scratch.path, "spill");
  await mkdir(spill);
  const counts = await countKeysIn(smallDuckDb(scratch.path, spill), ["key"], groupsOf([part]));
  expect(counts).toMatchObject({ repeated: 1, nulls: 0 });
  await expect(countKeysIn(smallDuckDb(scratch.path), ["key"], groupsOf([part]))).rejects.toMatchObject({
    code: "MEMORY",
    exitCode: 75,
  });
});
