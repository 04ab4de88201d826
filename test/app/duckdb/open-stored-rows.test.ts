import { join } from "node:path";
import { expect, test } from "vitest";
import { openStoredRows } from "#src/app/duckdb/open-stored-rows.js";
import { scratchFolder } from "../../support/job.js";
import { writeRows } from "../../support/parquet.js";

test("stored rows that memory cannot join end with MEMORY, which another attempt may not meet", async () => {
  await using scratch = await scratchFolder();
  const path = join(scratch.path, "part.parquet");
  const rows = 200_000;
  await writeRows(
    path,
    `SELECT md5(i::VARCHAR) || md5((i + 1)::VARCHAR) AS id, uuid() AS reuse_hash FROM range(${rows}) t(i)`,
  );
  const groups = (async function* () {
    yield await Promise.resolve([path]);
  })();
  const options = { folder: scratch.path, writer: "test", isDead: () => false, threads: 1, memoryBytes: 1 << 20 };
  const files = { format: "parquet", rows, folder: scratch.path, groups } as const;
  await using reader = await openStoredRows(options, { files, key: [{ name: "id", type: "utf8" }], outputs: [] });
  await expect(reader.join()).rejects.toMatchObject({
    code: "MEMORY",
    message: expect.stringMatching(/^joining the rows of an earlier run: Out of Memory Error/),
    hint: expect.stringContaining("engine.memory"),
  });
});
