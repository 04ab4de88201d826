import { describe, expect, test } from "vitest";
import type { UnitSharing } from "#src/formats/format.js";
import { cutRows, decodingThreads, unitRows } from "#src/formats/unit-sizes.js";
import type { Contract, PassthroughBinding } from "#src/models/binding/contract.js";
import { emptyContract, matrixBinding, ref } from "../support/batches.js";
import { join } from "node:path";
import { readParquetFooter } from "#src/formats/parquet/footer.js";
import { withTextSizes } from "#src/formats/parquet/long-values.js";
import { scratchFolder } from "../support/job.js";
import { writeRows } from "../support/parquet.js";

const most = 128 * 1024;

function scoring(threads: number, rowsLeft: number, batchRows = 256): UnitSharing {
  return { workers: threads, rowsLeft, batchRows: () => batchRows };
}

test("the next unit has the most rows while many are left, or if the number is unknown", () => {
  expect(unitRows(most, 0, scoring(2, 4_000_000))).toBe(most);
  expect(unitRows(most, 2_000_000, scoring(2, 4_000_000))).toBe(most);
  expect(unitRows(most, 0, undefined)).toBe(most);
});

test("the next unit has fewer rows towards the end, so that all threads have work", () => {
  expect(unitRows(most, 0, scoring(2, 100_000, 100))).toBe(12_500);
  expect(unitRows(most, 3_900_000, scoring(2, 4_000_000, 100))).toBe(12_500);
  expect(unitRows(most, 0, scoring(16, 1_000_000, 5))).toBe(15_625);
});

test("the next unit has enough rows for a message and a batch of the model", () => {
  expect(unitRows(most, 9000, scoring(4, 10_000))).toBe(1024);
  expect(unitRows(most, 9000, scoring(4, 10_000, 4096))).toBe(4096);
  expect(unitRows(most, 0, scoring(2, 100_000, 4096))).toBe(16_384);
  expect(unitRows(2000, 0, scoring(4, 10_000, 4096))).toBe(2000);
});

describe("rows are cut into units", () => {
  const from = 7;
  test.each([
    { rows: 100, most: 100, cuts: [107] },
    { rows: 101, most: 100, cuts: [58, 108] },
    {
      rows: 122_880,
      most: 15_000,
      batch: 4096,
      cuts: [16_391, 32_775, 49_159, 65_543, 81_927, 98_311, 114_695, 122_887],
    },
    { rows: 10, most: 2000, batch: 4096, cuts: [17] },
  ])("$rows, at most $most", ({ rows, most: limit, batch, cuts }) => {
    const found = cutRows({ from, to: from + rows }, limit, batch === undefined ? undefined : scoring(2, rows, batch));
    expect(found.map(({ to }) => to)).toEqual(cuts);
    expect(found.map((part) => part.from)).toEqual([from, ...cuts.slice(0, -1)]);
  });
});

interface Case extends Pick<Contract, "inputs"> {
  readonly what: string;
  readonly passthrough?: readonly PassthroughBinding[];
  readonly on2: number;
  readonly on16: number;
}

const columns = (count: number): string[] => Array.from({ length: count }, (_, index) => `f${index}`);

const carried = (count: number): PassthroughBinding[] =>
  columns(count).map((column) => ({ column, source: ref(column, "float64") }));

test.each<Case>([
  { what: "few columns", inputs: [matrixBinding(columns(32))], on2: 2, on16: 16 },
  { what: "200 columns", inputs: [matrixBinding(columns(200))], on2: 1, on16: 10 },
  { what: "57 doubles", inputs: [], passthrough: carried(57), on2: 2, on16: 16 },
  { what: "200 doubles", inputs: [], passthrough: carried(200), on2: 1, on16: 5 },
  { what: "10,000 columns", inputs: [matrixBinding(columns(10_000))], on2: 1, on16: 1 },
  {
    what: "a list of 400",
    inputs: [{ kind: "list" as const, input: "x", dtype: "float32" as const, width: 400, column: ref("vector") }],
    on2: 1,
    on16: 5,
  },
])("rows of $what are decoded by as many threads as memory allows", ({ inputs, passthrough = [], on2, on16 }) => {
  const projection = { ...emptyContract, inputs, passthrough };
  expect([decodingThreads(2, projection), decodingThreads(16, projection)]).toEqual([on2, on16]);
});

const rows = 1000;

async function sizesOf(body: string, options: string): Promise<(number | undefined)[]> {
  await using scratch = await scratchFolder();
  const path = join(scratch.path, "a.parquet");
  await writeRows(path, `SELECT range AS id, ${body} AS body FROM range(${rows})`, options);
  const names = ["id", "body"] as const;
  const passthrough = names.map((name) => ({ column: name, source: ref(name, name === "id" ? "int64" : "utf8") }));
  const slice = {
    file: { path, name: path },
    rowStart: 0,
    rowEnd: rows,
    projection: { ...emptyContract, passthrough },
  };
  const footer = await withTextSizes(await readParquetFooter({ path }), slice);
  return footer.rowGroups.flatMap(({ chunks }) => chunks.map(({ unencodedBytes }) => unencodedBytes));
}

test.each(["uncompressed", "snappy", "zstd", "gzip", "lz4_raw", "brotli"])(
  "all rows of a dictionary's column are taken to have its longest text (%s)",
  async (codec) => {
    const body = "CASE WHEN range % 2 = 0 THEN 'short' ELSE repeat('a', 50000) END";
    expect(await sizesOf(body, `COMPRESSION ${codec}`)).toEqual([undefined, 50_000 * rows]);
  },
);

test("short texts of a dictionary, and texts without one, are left as the footer describes them", async () => {
  expect(await sizesOf("'kind ' || (range % 7)", "COMPRESSION zstd")).toEqual([undefined, undefined]);
  expect(await sizesOf("repeat('a', 5000) || range", "DICTIONARY_SIZE_LIMIT 0")).toEqual([undefined, undefined]);
});
