import { join } from "node:path";
import { expect, test } from "vitest";
import { readStatistics } from "#src/targets/lake.js";
import { scratch } from "../support/job.js";
import { connectToDuckDb, writeRows } from "../support/parquet.js";

test("dates whose years have five digits, or are before Christ, bound no file, whichever row group they are in", async () => {
  const path = join(scratch.path, "dates.parquet");
  const first = (date: string): string =>
    `CASE WHEN i = 7 THEN DATE '${date}' WHEN i < 2048 THEN DATE '2026-01-01' ELSE DATE '0001-01-01' END`;
  const dates = { late: first("10000-01-01"), early: first("0044-03-15 (BC)"), usual: first("0099-12-31") };
  const columns = Object.entries(dates).map(([name, sql]) => `${sql} AS ${name}`);
  await writeRows(path, `SELECT ${columns.join(", ")} FROM range(4096) t(i)`, "ROW_GROUP_SIZE 2048");
  const connection = await connectToDuckDb();
  const types = Object.keys(dates).map((name) => ({ name, type: "date32" as const }));
  const statistics = (await readStatistics(connection, types, [path])).get(path) ?? [];
  connection.closeSync();
  expect(Object.fromEntries(statistics.map(({ name, bounds }) => [name, bounds]))).toEqual({
    late: undefined,
    early: undefined,
    usual: ["0001-01-01", "2026-01-01"],
  });
});
