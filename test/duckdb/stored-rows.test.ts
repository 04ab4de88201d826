import { join } from "node:path";
import { expect, test } from "vitest";
import { openDuckDb } from "#src/duckdb/instance.js";
import { readStored, type StoredGroups } from "#src/duckdb/stored-rows.js";
import { scratch } from "../support/job.js";
import { writeRows } from "../support/parquet.js";

const columns = {
  key: [{ name: "id", type: "int32" as const }],
  outputs: [],
  hash: { name: "hash", type: "int32" as const },
};

function filesOf(path: string): StoredGroups {
  const groups = (async function* () {
    yield await Promise.resolve([path]);
  })();
  return { format: "parquet", groups };
}

test("rows that come in another number than were stored are an error: DuckDB's streams end silently", async () => {
  const path = join(scratch.path, "part.parquet");
  await writeRows(path, "SELECT i::INTEGER AS id, i::INTEGER AS hash FROM range(10) t(i)");
  using duckdb = await openDuckDb({ threads: 1, memoryBytes: 64 << 20, allowed: { folders: [scratch.path] } });
  const connection = await duckdb.connect();
  const count = async (rows: number): Promise<number> => {
    let found = 0;
    for await (const { rowCount } of readStored(connection, columns, { ...filesOf(path), rows })) {
      found += rowCount;
    }
    return found;
  };
  expect(await count(10)).toBe(10);
  await expect(count(11)).rejects.toThrow("10 rows came, 11 were stored");
  connection.closeSync();
});
