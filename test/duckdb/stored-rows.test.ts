import { join } from "node:path";
import { expect, test } from "vitest";
import { openDuckDb } from "#src/duckdb/instance.js";
import { addWanted, joinStored, loadStored, readStored, type StoredGroups } from "#src/duckdb/stored-rows.js";
import { watched } from "../support/watched-sql.js";
import { scratchFolder } from "../support/job.js";
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
  await using scratch = await scratchFolder();
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

test("more stored rows than memory holds are joined with those that want them, in the order of the latter", async () => {
  const [rows, memoryBytes] = [1_000_000, 24 << 20];
  const smallMemory = 2 << 20; // so that there are several passes
  await using scratch = await scratchFolder();
  const path = join(scratch.path, "part.parquet");
  // Each thousandth key is there twice, and belongs to none.
  const select = `SELECT (if(i % 1000 = 0, i + 1, i) * 7919 % ${rows})::INTEGER AS id, i::INTEGER AS hash FROM range(${rows}) t(i)`;
  await writeRows(path, select);
  using duckdb = await openDuckDb({
    threads: 1,
    memoryBytes,
    spillFolder: join(scratch.path, "spill"),
    allowed: { folders: [scratch.path] },
  });
  const statements: string[] = [];
  const connection = watched(await duckdb.connect(), statements);
  const passes = (what: RegExp): number => statements.filter((sql) => what.test(sql)).length;
  expect(await loadStored(connection, columns, filesOf(path), smallMemory)).toBe(rows - (2 * rows) / 1000);
  expect(passes(/^INSERT INTO repeated/)).toBeGreaterThan(1);
  const step = 100_000;
  for (let from = 0; from < rows; from += step) {
    const ids = Int32Array.from({ length: step }, (_, index) => from + index);
    await addWanted(connection, columns.key, {
      rows: Float64Array.from(ids),
      keys: [{ kind: "fixed", elementsPerValue: 1, data: ids, valid: undefined }],
      isFirst: from === 0,
    });
  }
  let [found, wrong, last] = [0, 0, -1];
  for await (const { rows: numbers, hashes } of joinStored(connection, columns, smallMemory)) {
    for (const [index, row] of numbers.entries()) {
      wrong += row > last && (Number(hashes.data[index]) * 7919) % rows === row ? 0 : 1;
      last = row;
    }
    found += numbers.length;
  }
  expect([found, wrong]).toEqual([rows - (2 * rows) / 1000, 0]);
  expect(passes(/ found /)).toBeGreaterThan(2);
  connection.closeSync();
});

test("found rows that come in another number than were found are an error", async () => {
  await using scratch = await scratchFolder();
  const path = join(scratch.path, "part.parquet");
  await writeRows(path, "SELECT i::INTEGER AS id, i::INTEGER AS hash FROM range(10) t(i)");
  using duckdb = await openDuckDb({ threads: 1, memoryBytes: 64 << 20, allowed: { folders: [scratch.path] } });
  const connection = await duckdb.connect();
  await loadStored(connection, columns, filesOf(path), 64 << 20);
  const ids = Int32Array.from({ length: 10 }, (_, index) => index);
  const keys = [{ kind: "fixed", elementsPerValue: 1, data: ids, valid: undefined }] as const;
  await addWanted(connection, columns.key, { rows: Float64Array.from(ids), keys, isFirst: true });
  const stream = connection.stream.bind(connection);
  connection.stream = async (sql) => await stream(`${sql} LIMIT 3`); // as a stream that ran out of memory
  const found: number[] = [];
  await expect(async () => {
    for await (const { rows } of joinStored(connection, columns, 64 << 20)) {
      found.push(...rows);
    }
  }).rejects.toThrow("3 rows came, 10 were found");
  expect(found).toEqual([0, 1, 2]);
  connection.closeSync();
});
