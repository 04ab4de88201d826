import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { areFinite } from "#src/columns/loops/vectors.js";
import type { BytesColumn, FixedColumn } from "#src/columns/types.js";
import { isZstdNative } from "#src/formats/codecs.js";
import type { SliceRequest } from "#src/formats/format.js";
import { readParquetFooter } from "#src/formats/parquet/footer.js";
import { openColumn } from "#src/formats/parquet/pages/column.js";
import { openPageMemory, type PageMemory } from "#src/formats/parquet/pages/page-memory.js";
import { openParquetUnitReader, openUnitPieces, type ParquetUnit, parquetUnits } from "#src/formats/parquet/units.js";
import { scratch, scratchFolder } from "../../support/job.js";
import { plenty } from "../../support/memory.js";
import { tinyParquet } from "../../support/parquet-bytes.js";
import { writeLists, writeTables, type Writing } from "../../support/parquet-tables.js";
import {
  doubleChunk,
  openDuckDb,
  readByDuckDb,
  reader,
  readUnits,
  type RowBounds,
  wholeSlice,
} from "../../support/parquet-units.js";
import { writeRows } from "../../support/parquet.js";
import { hasPyarrow } from "../../support/pyarrow.js";
import { randomOf } from "../../support/random.js";

async function compare(path: string, cuts: readonly RowBounds[] = []): Promise<void> {
  await using duckdb = openDuckDb(path);
  const whole = await wholeSlice(path);
  if (whole === undefined) {
    throw new Error(`only DuckDB knows the columns of ${path}`);
  }
  const expected = await readByDuckDb(duckdb, whole);
  expect(await readUnits(whole)).toEqual(expected);
  expect(await readUnits(whole, randomOf(whole.rowEnd))).toEqual(expected);
  for (const [from, to] of cuts) {
    const cut = Object.fromEntries(Object.entries(expected).map(([name, values]) => [name, values.slice(from, to)]));
    expect(await readUnits({ ...whole, rowStart: from, rowEnd: to }), `rows ${from} to ${to}`).toEqual(cut);
  }
}

function cutsOf(rows: number, count: number): RowBounds[] {
  const random = randomOf(rows);
  const cuts = Array.from({ length: count }, (): RowBounds => {
    const [one = 0, other = 0] = [random(), random()].map((part) => Math.floor(part * rows)).toSorted((a, b) => a - b);
    return [one, Math.max(one + 1, other)];
  });
  return [[0, 1], [rows - 1, rows], ...cuts];
}

const rows = 1300;
const small = "data_page_size=700";
const codecs = ["none", "snappy", "gzip", ...(!isZstdNative ? [] : ["zstd"])];

const writings: readonly Writing[] = [
  ...codecs.flatMap((codec) =>
    ["1.0", "2.0"].map((version) => ({
      name: `${codec}-v${version[0]}`,
      options: `compression="${codec}", data_page_version="${version}", use_dictionary=${version === "1.0" ? "True" : "False"}, ${small}, row_group_size=1100`,
    })),
  ),
  { name: "dictionary-v2", options: `data_page_version="2.0", ${small}` },
  { name: "plain-v1", options: `use_dictionary=False, ${small}` },
  { name: "fallback", options: `dictionary_pagesize_limit=600, ${small}` },
  { name: "large-pages", options: `dictionary_pagesize_limit=2000` },
  { name: "checked", options: `write_page_checksum=True, write_page_index=True, ${small}` },
  { name: "old-format", options: `version="1.0", coerce_timestamps="us"` },
  { name: "many-groups", options: "row_group_size=37" },
];

describe.skipIf(!hasPyarrow)("files of pyarrow's are read as DuckDB reads them", () => {
  test.each(writings)("$name", async (writing) => {
    writeTables(scratch.path, rows, [writing]);
    await compare(join(scratch.path, `${writing.name}.parquet`), cutsOf(rows, 3));
  });
});

const listWritings: readonly Writing[] = [
  ...codecs.flatMap((codec) =>
    ["1.0", "2.0"].map((version) => ({
      name: `${codec}-v${version[0]}`,
      options: `compression="${codec}", data_page_version="${version}", data_page_size=400, write_batch_size=30, use_dictionary=${(codec === "gzip") === (version === "1.0") ? "True" : "False"}, row_group_size=${version === "1.0" ? 400 : 170}`,
    })),
  ),
  { name: "fallback", options: "dictionary_pagesize_limit=60, data_page_size=900, write_batch_size=7" },
  {
    name: "indexed",
    options: "write_page_index=True, write_page_checksum=True, use_dictionary=False, data_page_size=600",
  },
  { name: "large-pages", options: "use_dictionary=False" },
];

describe.skipIf(!hasPyarrow)("lists in files of pyarrow's are read as DuckDB reads them", () => {
  test.each(listWritings)("lists in files of pyarrow's are read as DuckDB reads them: $name", async (writing) => {
    writeLists(scratch.path, 400, [writing]);
    await compare(join(scratch.path, `${writing.name}.parquet`), cutsOf(400, 3));
  });
});

const duckDbRows = 7000;
const columns = `row % 2 = 0 AS b, CASE WHEN row % 5 = 0 THEN NULL ELSE row % 3 = 0 END AS b_null,
  (row % 256 - 128)::TINYINT AS i8, row::SMALLINT AS i16, row::INTEGER - 3000 AS i32, (row * 7919 - 9223372036854775807)::BIGINT AS i64,
  (row % 256)::UTINYINT AS u8, row::USMALLINT AS u16, 4294967295 - row::UINTEGER AS u32,
  18446744073709551615 - row::UBIGINT AS u64, (row / 7)::FLOAT AS f32,
  CASE row % 5 WHEN 0 THEN 'nan'::DOUBLE WHEN 1 THEN 'inf'::DOUBLE WHEN 2 THEN -0.0 ELSE row / 7 END AS f64,
  DATE '1970-01-01' - row::INTEGER AS day, TIMESTAMP '1969-12-31 23:59:59.999999' + to_microseconds(row * row) AS us,
  TIMESTAMPTZ '2026-01-01 00:00:00+05:30' + to_microseconds(row) AS utc, 'level ' || (row % 7) AS few,
  CASE WHEN row % 11 = 0 THEN '' WHEN row % 13 = 0 THEN NULL ELSE repeat('ä', row::INTEGER % 50) || row END AS text,
  CASE WHEN row < 3000 THEN NULL ELSE encode('bytes ' || row) END AS bytes, NULL::DOUBLE AS nothing, 7 AS one,
  [row / 7, row, 0.5]::FLOAT[] AS l, range(row % 5)::TINYINT[] AS l_any, NULL::BIGINT[] AS l_nothing,
  CASE WHEN row % 9 = 4 THEN NULL ELSE list_transform(range(row % 4), k -> CASE WHEN k = 1 THEN NULL ELSE row * k END) END AS l_null`;

test("numbers without NULLs are read to where vectors reach them, however many a page has", async () => {
  const path = join(scratch.path, "a.parquet");
  // Before 10,240 values there is one more byte of levels than before 1,760.
  const options = "COMPRESSION snappy, ROW_GROUP_SIZE 10240, DICTIONARY_SIZE_LIMIT 0";
  await writeRows(path, "SELECT row::FLOAT AS f FROM range(24000) t(row)", options);
  const slice = await wholeSlice(path);
  const units = slice && parquetUnits(await readParquetFooter({ path }), slice, { limits: plenty });
  const pageMemories: PageMemory[] = [];
  const tools = { read: reader(readFileSync(path)), scratch: (size: number) => new Uint8Array(size), pageMemories };
  const reached = units?.flatMap((unit) =>
    Array.from(openUnitPieces(tools).read(unit), ({ columns: read }) =>
      areFinite((read.get("f") as FixedColumn).data as Float32Array),
    ),
  );
  expect(reached).toEqual([true, true, true]);
  for (const pageMemory of pageMemories) {
    pageMemory.close();
  }
});

function rowsFrom(from: number, to: number): number[] {
  return Array.from({ length: to - from }, (_, row) => from + row);
}

test("units that follow on each other in a row group unpack its pages once", async () => {
  const path = join(scratch.path, "a.parquet");
  await writeRows(path, "SELECT row::FLOAT AS f FROM range(9000) t(row)", "DICTIONARY_SIZE_LIMIT 0");
  const slice = await wholeSlice(path);
  const [unit] = (slice && parquetUnits(await readParquetFooter({ path }), slice, { limits: plenty })) ?? [];
  const pageMemories: PageMemory[] = [];
  const read = vi.fn(reader(readFileSync(path)));
  const pieces = openUnitPieces({ read, scratch: (size: number) => new Uint8Array(size), pageMemories });
  const readRows = (rowStart: number, rowEnd: number): number[] =>
    Array.from(pieces.read({ ...(unit as ParquetUnit), rowStart, rowEnd }), ({ columns: found }) => [
      ...((found.get("f") as FixedColumn).data as Float32Array),
    ]).flat();
  expect(readRows(0, 100)).toEqual(rowsFrom(0, 100));
  const once = read.mock.calls.length;
  expect(readRows(100, 900)).toEqual(rowsFrom(100, 900));
  expect(readRows(5000, 5010)).toEqual(rowsFrom(5000, 5010));
  expect(read.mock.calls.length).toBe(once);
  // What lies before comes of the pages once more.
  expect(readRows(4000, 4010)).toEqual(rowsFrom(4000, 4010));
  expect(read.mock.calls.length).toBe(2 * once);
  const given = pieces.read({ ...(unit as ParquetUnit), rowStart: 5000, rowEnd: 9000 });
  given.next();
  given.return(undefined);
  expect(readRows(8990, 9000)).toEqual(rowsFrom(8990, 9000));
  for (const pageMemory of pageMemories) {
    pageMemory.close();
  }
});

test("numbers behind levels that are packed to bits are read in place from the second page on", () => {
  const values = Array.from({ length: 1000 }, (_, index) => index);
  const levels = [127, 0, 0, 0, 251, 1, ...Array.from({ length: 125 }, () => 255)];
  const file = tinyParquet({ values, levels, repetition: 1 });
  const page = file.subarray(4, file.indexOf(Buffer.from(new Float64Array(values).buffer)) + 8000);
  const chunk = Buffer.concat([page, page, page]);
  const pageMemory = openPageMemory();
  const column = doubleChunk(chunk.length, 3000);
  const rowsOf = openColumn(column, { read: reader(chunk), scratch: (size) => new Uint8Array(size), pageMemory });
  const inPlace = [1, 2, 3].map(() => {
    rowsOf.ahead();
    const { data } = rowsOf.take(1000) as FixedColumn;
    expect([...(data as Float64Array)]).toEqual(values);
    const { byteOffset } = pageMemory.memory("page", 1);
    return data.byteOffset >= byteOffset && data.byteOffset < byteOffset + 8 * 1024;
  });
  expect(inPlace.slice(1)).toEqual([true, true]);
  pageMemory.close();
});

describe("files of DuckDB's own are read as it reads them", () => {
  test.each(codecs.map((codec) => codec.replace("none", "uncompressed")))("%s", async (codec) => {
    const path = join(scratch.path, "a.parquet");
    const select = `SELECT ${columns} FROM range(${duckDbRows}) t(row)`;
    await writeRows(path, select, `COMPRESSION ${codec}, ROW_GROUP_SIZE 4096`);
    await compare(path, cutsOf(duckDbRows, 3));
  });

  test("files of DuckDB's writer are read like DuckDB does without dictionaries", async () => {
    const path = join(scratch.path, "a.parquet");
    const select = `SELECT ${columns} FROM range(${duckDbRows}) t(row)`;
    await writeRows(path, select, "DICTIONARY_SIZE_LIMIT 1, STRING_DICTIONARY_PAGE_SIZE_LIMIT 1");
    await compare(path, cutsOf(duckDbRows, 3));
  });
});

async function countHere(query: string, options: string): Promise<number> {
  await using folder = await scratchFolder();
  const path = join(folder.path, "a.parquet");
  await writeRows(path, query, options);
  const slice = (await wholeSlice(path)) as SliceRequest;
  const unitReader = openParquetUnitReader();
  let count = 0;
  try {
    for (const unit of parquetUnits(await readParquetFooter({ path }), slice, { limits: plenty }) ?? []) {
      for await (const { rowStart, rowEnd } of unitReader.read(unit, slice.projection)) {
        count += rowEnd - rowStart;
      }
    }
    return count;
  } finally {
    unitReader.close();
  }
}

test("a page of numbers in a dictionary is left to DuckDB if it is larger than what loops reach", async () => {
  const lists =
    "SELECT list_transform(range(460), k -> (hash(i * 1000 + k) % 40000)::FLOAT) AS l FROM range(20000) t(i)";
  const options = "COMPRESSION snappy, ROW_GROUP_SIZE 122880, DICTIONARY_SIZE_LIMIT 100000";
  await expect(countHere(lists, options)).rejects.toThrow(/^a page of \d+ bytes, 19\d{6} when unpacked$/);
  expect(await countHere(lists.replace("20000", "9000"), options)).toBe(9000);
});

test("texts that repeat those of a dictionary are read as codes, unless one of their page is NULL", async () => {
  await using folder = await scratchFolder();
  const path = join(folder.path, "a.parquet");
  await writeRows(path, "SELECT ['x', 'y'][1 + i % 2] AS t, if(i % 3 = 0, NULL, t) AS n FROM range(90) r(i)");
  const slice = (await wholeSlice(path)) as SliceRequest;
  const [unit] = parquetUnits(await readParquetFooter({ path }), slice, { limits: plenty }) ?? [];
  const unitReader = openParquetUnitReader();
  try {
    for await (const piece of unitReader.read(unit as ParquetUnit, slice.projection)) {
      const [t, n] = [piece.columns.get("t"), piece.columns.get("n")];
      expect([...((t as BytesColumn).codes?.indices ?? [])].slice(0, 4)).toEqual([0, 1, 0, 1]);
      expect(new Set((n as BytesColumn).valid)).toEqual(new Set([0, 1]));
      expect(n).not.toHaveProperty("codes");
    }
  } finally {
    unitReader.close();
  }
});

test("a thread without WebAssembly memory leaves all units to DuckDB", () => {
  const code = `import { openParquetUnitReader } from "#src/formats/parquet/units.js";
    import { doWithoutVectors } from "#src/columns/loops/vectors.js";
    const columns = [];
    doWithoutVectors();
    try {
      openParquetUnitReader().read({ path: process.execPath, columns }).next();
    } catch (error) {
      console.log(error.name, error.message);
    }`;
  const told = execFileSync(process.execPath, ["--input-type=module", "-e", code], { encoding: "utf8" });
  expect(told).toBe("RangeError a thread without WebAssembly memory\n");
});
