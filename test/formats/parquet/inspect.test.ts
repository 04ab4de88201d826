import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ParquetSchema, ParquetWriter } from "parquetjs-lite";
import { expect, test } from "vitest";
import { inspectParquet } from "#src/formats/parquet/inspect.js";
import { projectFolder } from "../../support/cli.js";
import { scratch } from "../../support/job.js";
import { query, writeRows } from "../../support/parquet.js";

const nullsOf = async (path: string): Promise<Record<string, number | null>> =>
  Object.fromEntries((await inspectParquet(path)).columns.map(({ name, nulls }) => [name, nulls]));

/** 3000 rows in row groups of 2048 and 952; `a` is NULL in 77 rows of the first and 5 of the second. */
const someNulls = `SELECT row AS id, CASE WHEN row < 77 OR row >= 2995 THEN NULL ELSE row::INTEGER END AS a,
  NULL::VARCHAR AS nothing FROM range(3000) AS t(row)`;

test("NULL counts are the sum of all row groups'", async () => {
  const path = join(scratch.path, "a.parquet");
  await writeRows(path, someNulls, "ROW_GROUP_SIZE 2048");
  expect(await inspectParquet(path)).toMatchObject({ rows: 3000, rowGroups: 2, rowGroupRows: { min: 952, max: 2048 } });
  expect(await nullsOf(path)).toEqual({ id: 0, a: 82, nothing: 3000 });
});

test("NULL counts are unknown when one row group does not state them", async () => {
  const path = join(scratch.path, "a.parquet");
  await writeRows(path, someNulls, "ROW_GROUP_SIZE 2048");
  const bytes = await readFile(path);
  // Thrift's compact protocol: field 3, an i64; 77 as a zigzag varint. Field 13 is one that no reader knows.
  const count = Buffer.from([0x16, 0x9a, 0x01]);
  const at = bytes.indexOf(count);
  expect([at > 0, bytes.indexOf(count, at + 1)]).toEqual([true, -1]);
  bytes[at] = 0xb6;
  await writeFile(path, bytes);
  expect(await nullsOf(path)).toEqual({ id: 0, a: null, nothing: 3000 });
});

test("NULL counts are unknown without statistics, but 0 where the schema allows none", async () => {
  const path = join(scratch.path, "a.parquet");
  const schema = new ParquetSchema({
    must: { type: "INT64", statistics: false },
    may: { type: "DOUBLE", optional: true, statistics: false },
  });
  const writer = await ParquetWriter.openFile(schema, path);
  await writer.appendRow({ must: 1n, may: 1 });
  await writer.appendRow({ must: 2n });
  await writer.close();
  expect(await nullsOf(path)).toEqual({ must: 0, may: null });
});

test("NULL counts are unknown when the stated ones are impossible", async () => {
  const path = join(scratch.path, "a.parquet");
  await writeRows(path, "SELECT CASE WHEN row >= 77 THEN row END AS a FROM range(100) AS t(row)");
  const bytes = await readFile(path);
  const at = bytes.indexOf(Buffer.from([0x16, 0x9a, 0x01]));
  bytes[at + 2] = 0x7f; // 8141
  await writeFile(path, bytes);
  expect(await nullsOf(path)).toEqual({ a: null });
});

test("NULL counts of lists, structs and maps are unknown: the statistics are those of their elements", async () => {
  const path = join(scratch.path, "a.parquet");
  await writeRows(
    path,
    "SELECT NULL::INTEGER AS n, [1, NULL] AS l, {'x': NULL::INTEGER} AS s, MAP {'k': 1} AS m, 1 AS i",
  );
  expect(await nullsOf(path)).toEqual({ n: 1, l: null, s: null, m: null, i: 0 });
});

test("NULL counts of a shard without rows are 0", async () => {
  const path = join(scratch.path, "a.parquet");
  await writeRows(path, "SELECT 1 AS i, [1] AS l WHERE false");
  expect(await inspectParquet(path)).toMatchObject({ rows: 0, rowGroups: 0, rowGroupRows: null });
  expect(await nullsOf(path)).toEqual({ i: 0, l: 0 });
});

test("sizes and codecs of a nested column cover all of its leaves, and add up to those of the row groups", async () => {
  const path = join(scratch.path, "a.parquet");
  await writeRows(
    path,
    `SELECT row AS id, {'x': row, 'deep': {'y': [row, row]}} AS s, MAP {'k': 'v' || row} AS m, row * 2 AS "a, b"
       FROM range(500) AS t(row)`,
  );
  const { columns } = await inspectParquet(path);
  const chunks = await query(
    `SELECT CASE WHEN path_in_schema LIKE 's,%' THEN 's' WHEN path_in_schema LIKE 'm,%' THEN 'm' ELSE path_in_schema END AS name,
         sum(total_compressed_size)::INTEGER AS compressed, sum(total_uncompressed_size)::INTEGER AS uncompressed
       FROM parquet_metadata('${path}') GROUP BY ALL ORDER BY min(column_id)`,
  );
  expect(chunks.map(({ name }) => name)).toEqual(["id", "s", "m", "a, b"]);
  expect(
    columns.map(({ name, compressedBytes, uncompressedBytes }) => ({
      name,
      compressed: compressedBytes,
      uncompressed: uncompressedBytes,
    })),
  ).toEqual(chunks);
});

test("a column's codec is its own", async () => {
  const path = join(scratch.path, "a.parquet");
  const schema = new ParquetSchema({
    plain: { type: "INT64" },
    gzipped: { type: "UTF8", compression: "GZIP" },
    snappy: { type: "UTF8", compression: "SNAPPY" },
  });
  const writer = await ParquetWriter.openFile(schema, path);
  await writer.appendRow({ plain: 1n, gzipped: "a", snappy: "b" });
  await writer.close();
  const { columns } = await inspectParquet(path);
  expect(columns.map(({ codecs }) => codecs)).toEqual([["uncompressed"], ["gzip"], ["snappy"]]);
});

test("the keys of the file's metadata are shown, also those that are no text", async () => {
  const path = join(scratch.path, "a.parquet");
  await writeRows(path, "SELECT 1 AS i", "KV_METADATA {'schlüssel': 'x', 'Xey': 'y'}");
  const bytes = await readFile(path);
  bytes[bytes.indexOf("Xey")] = 0xff;
  await writeFile(path, bytes);
  expect([...(await inspectParquet(path)).metadataKeys].toSorted()).toEqual(["schlüssel", "\uFFFDey"]);
});

test("a file is read with any characters in its path", async () => {
  const strange = join(scratch.path, "what?[1]*'s");
  await mkdir(strange);
  const path = join(strange, "a[1]*?'.parquet");
  await copyFile(join(projectFolder, "fixtures/data/wine/part-00001.parquet"), path);
  expect(await inspectParquet(path)).toMatchObject({ path, rows: 1 });
});
