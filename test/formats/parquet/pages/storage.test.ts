import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { SourceColumn } from "#src/columns/types.js";
import { type Footer, readParquetFooter } from "#src/formats/parquet/footer.js";
import { messageOf } from "#src/base/errors.js";
import { plainColumns } from "#src/formats/parquet/pages/storage.js";
import { readColumns } from "#src/duckdb/parquet-schema.js";
import { corpusFolder, corpusIsWhole, corpusNote, filesIn } from "../../../corpora/corpus.js";
import { projectFolder } from "../../../support/cli.js";
import { scratch } from "../../../support/job.js";
import { connectToDuckDb, writeRows } from "../../../support/parquet.js";
import { openDuckDb, readByDuckDb, readUnits, wholeSlice } from "../../../support/parquet-units.js";

/** Those of other projects, which are among the fixtures, have a test of their own. */
const parquetIn = (folder: string): string[] =>
  filesIn(folder).filter((name) => name.endsWith(".parquet") && !name.startsWith("corpora/"));

async function footerOf(path: string): Promise<Footer | undefined> {
  try {
    return await readParquetFooter({ path });
  } catch {
    return undefined;
  }
}

async function duckDbColumns(path: string): Promise<SourceColumn[]> {
  const connection = await connectToDuckDb();
  try {
    return await readColumns(connection, path);
  } finally {
    connection.closeSync();
  }
}

/** Names of the files whose columns are told without DuckDB. */
async function compareColumns(folder: string): Promise<string[]> {
  const told: string[] = [];
  for (const name of parquetIn(folder)) {
    const path = join(folder, name);
    const footer = await footerOf(path);
    const columns = footer && plainColumns(footer.leaves);
    if (columns !== undefined) {
      expect(columns, name).toEqual(await duckDbColumns(path));
      told.push(name);
    }
  }
  return told;
}

async function compareRows(folder: string): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const name of parquetIn(folder)) {
    const path = join(folder, name);
    const slice = (await footerOf(path)) && (await wholeSlice(path));
    if (slice === undefined || slice.rowEnd === 0) {
      continue;
    }
    try {
      const ours = await readUnits(slice);
      if (ours === undefined) {
        found[name] = "left to DuckDB";
      } else {
        await using duckdb = openDuckDb(path);
        const theirs = await readByDuckDb(duckdb, slice).catch(messageOf); // it may refuse a column beside these
        expect(typeof theirs === "string" ? ours : theirs, name).toEqual(ours);
        found[name] = typeof theirs === "string" ? `only DuckDB refuses it: ${theirs}` : "equal";
      }
    } catch (error) {
      if (!(error instanceof RangeError)) {
        throw error;
      }
      found[name] = error.message;
    }
  }
  return found;
}

const fixtures = join(projectFolder, "fixtures");

test("the types of the fixtures' columns are read without DuckDB as DuckDB reads them", async () => {
  expect(await compareColumns(fixtures)).toContain("data/wine/part-00000.parquet");
});

test("the fixtures have rows that are read without DuckDB, as DuckDB reads them", async () => {
  const found = await compareRows(fixtures);
  expect(found).toMatchObject({ "data/cancer/part-00000.parquet": "equal", "golden/wine-forest.parquet": "equal" });
  expect(Object.values(found).filter((how) => how !== "equal" && how !== "left to DuckDB")).toEqual([]);
});

describe(`Apache Parquet's test files${corpusNote}`, () => {
  test("the types of the fixtures' columns are read without DuckDB as DuckDB reads them", async () => {
    expect(await compareColumns(corpusFolder)).toContain("data/sort_columns.parquet");
  });

  test("the fixtures have rows that are read without DuckDB, as DuckDB reads them, or refused", async () => {
    expect(await compareRows(corpusFolder)).toMatchObject({
      "data/binary.parquet": "equal",
      "data/concatenated_gzip_members.parquet": "equal",
      "data/data_index_bloom_encoding_stats.parquet": "equal",
      ...(corpusIsWhole ? { "data/overflow_i16_page_cnt.parquet": "equal" } : {}),
      "data/datapage_v1-snappy-compressed-checksum.parquet": "equal",
      "data/datapage_v2_empty_datapage.snappy.parquet": "equal",
      "data/delta_encoding_required_column.parquet": "encoding 5",
      "data/dict-page-offset-zero.parquet": "equal",
      "data/int32_with_null_pages.parquet": "equal",
      "data/rle-dict-snappy-checksum.parquet": "equal",
    });
  });
});

async function bothOf(path: string): Promise<{ ours: SourceColumn[] | undefined; duckdb: SourceColumn[] }> {
  const footer = await readParquetFooter({ path });
  return { ours: plainColumns(footer.leaves), duckdb: await duckDbColumns(path) };
}

test("only DuckDB determines the column types of a GeoParquet file, whose bytes are geometries", async () => {
  const path = join(scratch.path, "a.parquet");
  const geo = { version: "1.0.0", primary_column: "g", columns: { g: { encoding: "WKB", geometry_types: ["Point"] } } };
  await writeRows(path, "SELECT encode('point') AS g, 1.5::DOUBLE AS x", `KV_METADATA {geo: '${JSON.stringify(geo)}'}`);
  const { ours, duckdb } = await bothOf(path);
  expect(duckdb[0]?.sourceType).toBe("GEOMETRY");
  expect(ours).toBe(undefined);
});

test.each([
  { what: "without a name", columns: "1 AS a, 2 AS b", rename: { b: "" } },
  { what: "whose name ends in the middle, for DuckDB's interface", columns: "1 AS abc", rename: { abc: "a\0c" } },
  { what: "whose name is no UTF-8", columns: "1 AS abc", rename: { abc: "a\xFFc" } },
])("only DuckDB tells the columns of a file with columns $what", async ({ columns, rename }) => {
  const path = join(scratch.path, "a.parquet");
  await writeRows(path, `SELECT ${columns}`);
  expect((await bothOf(path)).ours).not.toBe(undefined);
  for (const [from, to] of Object.entries(rename)) {
    await renameColumn(path, from, to);
  }
  expect(plainColumns((await readParquetFooter({ path })).leaves)).toBe(undefined);
});

/** In the schema and in the chunks; `to`: bytes, as many. */
async function renameColumn(path: string, from: string, to: string): Promise<void> {
  const bytes = await readFile(path);
  const { pagesEnd } = await readParquetFooter({ path });
  const lengths = [from, to].map((name) => Buffer.concat([Buffer.from([name.length]), Buffer.from(name, "latin1")]));
  const [old, put] = lengths as [Buffer, Buffer];
  let footer = bytes.subarray(pagesEnd, -8).toString("latin1");
  footer = footer.replaceAll(old.toString("latin1"), put.toString("latin1"));
  const tail = Buffer.from(bytes.subarray(-8));
  tail.writeUInt32LE(footer.length);
  await writeFile(path, Buffer.concat([bytes.subarray(0, pagesEnd), Buffer.from(footer, "latin1"), tail]));
}
