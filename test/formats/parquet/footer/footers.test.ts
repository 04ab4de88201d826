import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import { leavesOf, type ListLevels, readElement, type SchemaElement } from "#src/formats/parquet/footer.js";
import { inspectParquet } from "#src/formats/parquet/inspect.js";
import { expectEnd } from "../../../support/cli.js";
import { differences, goldenRows } from "../../../support/golden.js";
import { scratch, scratchFolder } from "../../../support/job.js";
import { outputRows } from "../../../support/output.js";
import { type TinyFile, tinyParquet } from "../../../support/parquet-bytes.js";
import { carryAll, readUnits, wholeSlice } from "../../../support/parquet-units.js";
import { runSpec } from "../../../support/score.js";
import { ownJob } from "../../../support/world.js";

function footerStart(bytes: Buffer): number {
  return bytes.length - 8 - bytes.readUInt32LE(bytes.length - 8);
}

/** Writes another row count into a footer; the row groups keep theirs. Each count must fit one byte, zigzag. */
async function tellRows(path: string, { from, to }: { from: number; to: number }): Promise<void> {
  const bytes = await readFile(path);
  // Thrift's compact protocol: field 3, an i64. The file's own count comes before those of its row groups.
  const at = bytes.indexOf(Buffer.from([0x16, from * 2]), footerStart(bytes));
  expect(at).toBeGreaterThan(0);
  bytes[at + 1] = to * 2;
  await writeFile(path, bytes);
}

describe("a footer whose row count is not that of its row groups", () => {
  // Shard 0 has 60 rows, in row groups of 16; shard 2 has 17.
  test("a footer with a row count of 0, as some writers leave it, loses no row", async () => {
    const job = await ownJob(scratch.path, "wine-forest", { commit_rows: 50 });
    await tellRows(job.shard(0), { from: 60, to: 0 });

    expect((await runSpec(job.spec)).summary).toMatchObject({
      status: "complete",
      rows_planned: 178,
      rows_scored: 178,
    });

    expect(differences(await outputRows(job.out), await goldenRows(job.fixture))).toEqual([]);
    expect(await inspectParquet(job.shard(0))).toMatchObject({ rows: 60, rowGroups: 4 });
  });

  test("a footer whose row count is not that of its row groups ends the run with 65, even if another file's error cancels it out", async () => {
    const job = await ownJob(scratch.path, "wine-forest");
    await tellRows(job.shard(0), { from: 60, to: 61 });
    await tellRows(job.shard(2), { from: 17, to: 16 });

    const { stderr } = await expectEnd(runSpec(job.spec), 65);
    // Footers are read at the same time: either is told.
    const told = [
      `reading the footer of ${job.shard(0)}: it states 61 rows, but its row groups state 60`,
      `reading the footer of ${job.shard(2)}: it states 16 rows, but its row groups state 17`,
    ];
    expect(
      told.some((text) => stderr.includes(text)),
      stderr,
    ).toBe(true);
  });
});

describe("a shard that only other readers can read", () => {
  test("a shard that is encrypted is reported as encrypted", async () => {
    const job = await ownJob(scratch.path, "wine-forest");
    const bytes = await readFile(job.shard(0));
    bytes.write("PARE");
    bytes.write("PARE", bytes.length - 4);
    await writeFile(job.shard(0), bytes);

    await expectEnd(
      runSpec(job.spec),
      65,
      `reading the footer of ${job.shard(0)}: it is encrypted`,
      "hint: encrypted files are not supported; write the shard without encryption",
    );
  });

  test("a shard with a codec that DuckDB lacks is not reported as damaged", async () => {
    const job = await ownJob(scratch.path, "wine-forest");
    const bytes = await readFile(job.shard(0));
    // ColumnMetaData: field 4, an i32, gzip, then an i64; 5 is LZ4.
    const gzip = Buffer.from([0x15, 2 * 2, 0x16]);
    for (let at = bytes.indexOf(gzip, footerStart(bytes)); at >= 0; at = bytes.indexOf(gzip, at)) {
      bytes[at + 1] = 5 * 2;
    }
    await writeFile(job.shard(0), bytes);

    await expectEnd(
      runSpec(job.spec),
      65,
      'Unsupported compression codec "LZ4"',
      "hint: the shard has a codec or an encoding that cannot be read; write it again with another",
    );
  });
});

const values = [1, 2, 3];
const shown = values.map((value) => expect.stringContaining(`float64 ${value} `));

/** What is read of these bytes without DuckDB; undefined: nothing is tried. @throws where it is left in the middle */
async function read(file: Partial<TinyFile>): Promise<unknown> {
  await using folder = await scratchFolder();
  const path = join(folder.path, "a.parquet");
  await writeFile(path, tinyParquet({ values, ...file }));
  const projection = carryAll([{ name: "x", type: "float64" }]);
  const slice = (await wholeSlice(path)) ?? {
    file: { path, name: path },
    rowStart: 0,
    rowEnd: 3,
    projection,
    partitions: new Map(),
  };
  return (await readUnits({ ...slice, projection }))?.["x"];
}

const oneRun = [2, 0, 0, 0, 6, 1];

test("a correct page is read", async () => {
  expect(await read({})).toEqual(shown);
  expect(await read({ repetition: 1, levels: oneRun })).toEqual(shown);
  expect(await read({ dictionaryAt: 0 })).toEqual(shown); // some writers say so where there is none
});

test("a page with a long header is read", async () => {
  expect(await read({ statisticsBytes: 300_000 })).toEqual(shown);
});

describe("DuckDB is asked from the start where", () => {
  test.each<{ what: string; file: Partial<TinyFile> }>([
    { what: "the pages lie in another file", file: { chunkFile: "b.parquet" } },
    { what: "a dictionary is said to lie behind the values", file: { dictionaryAt: 5 } },
    { what: "the chunk has another name than the column", file: { chunkName: "y" } },
    { what: "the schema has no column of its leaves", file: { columns: 0 } },
    { what: "the schema has more columns than leaves", file: { columns: 2 } },
    { what: "the column is a list", file: { repetition: 2 } },
    { what: "the codec is another", file: { codec: 4 } },
  ])("$what", async ({ file }) => {
    expect(await read(file)).toBe(undefined);
  });
});

describe("a page is refused", () => {
  test.each<{ what: string; file: Partial<TinyFile> }>([
    { what: "that says it is an index", file: { pageKind: 1 } },
    { what: "whose kind is dictionary, with the header fields of data", file: { pageKind: 2 } },
    { what: "whose kind is version 2, with the header fields of version 1", file: { pageKind: 3 } },
    { what: "of a kind that there is not", file: { pageKind: 9 } },
    { what: "of no values", file: { pageValues: 0 } },
    { what: "of less than no values", file: { pageValues: -3 } },
    { what: "of fewer values than its bytes are", file: { pageValues: 2 } },
    {
      what: "of more values than its bytes are",
      file: { values: [1, 2], rows: 3, groupRows: 3, chunkValues: 3, pageValues: 3 },
    },
    { what: "of more values than the row group has rows", file: { pageValues: 4 } },
    { what: "with bytes behind its values", file: { rest: [0] } },
    { what: "in an encoding that is not known", file: { encoding: 9 } },
    { what: "of a dictionary that is not there", file: { encoding: 8 } },
    { what: "of runs, though it has no bits", file: { encoding: 3 } },
    { what: "that claims to be larger when unpacked", file: { unpackedBytes: 10_000, codec: 1 } },
    { what: "whose size is a lie", file: { pageBytes: 2 ** 31 - 1 } },
    { what: "whose size is negative", file: { pageBytes: -1 } },
    { what: "that is not what its codec makes", file: { codec: 1 } },
    { what: "that is not what gzip makes", file: { codec: 2 } },
    { what: "whose levels are missing", file: { repetition: 1 } },
    { what: "whose levels are in another encoding", file: { repetition: 1, levels: oneRun, levelEncoding: 4 } },
    { what: "whose levels end behind it", file: { repetition: 1, levels: [0xff, 0xff, 0xff, 0xff, 6, 1] } },
    { what: "whose levels are too few", file: { repetition: 1, levels: [2, 0, 0, 0, 4, 1] } },
    { what: "whose levels are too many", file: { repetition: 1, levels: [2, 0, 0, 0, 8, 1] } },
    { what: "whose levels are higher than there are", file: { repetition: 1, levels: [2, 0, 0, 0, 6, 3] } },
    { what: "with a value for a NULL", file: { repetition: 1, levels: [2, 0, 0, 0, 3, 5] } },
    { what: "with bytes behind its levels", file: { repetition: 1, levels: [3, 0, 0, 0, 6, 1, 0] } },
  ])("$what", async ({ file }) => {
    const error = await read(file).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(Error);
    expect(error).not.toBeInstanceOf(JobError); // which is about the footer
  });

  test("a page with more values than can be unpacked at once is refused without allocating memory for them", async () => {
    const rows = 2 ** 31 - 1;
    const claim = { values: [], rows, groupRows: rows, chunkValues: rows, pageValues: rows };
    const before = process.memoryUsage().rss;
    // All of them NULL, in one run.
    const levels = [6, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0];
    await expect(read({ ...claim, repetition: 1, levels })).rejects.toThrow(RangeError);
    expect(process.memoryUsage().rss - before).toBeLessThan(200 * 1024 * 1024);
  });
});

const [required, optional, repeated] = [0, 1, 2];

function group(name: string, repetition: number, children: number, annotation = ""): SchemaElement {
  return { name, repetition, children, fieldId: undefined, annotation, utcNanosAt: undefined, type: undefined };
}

function leaf(name: string, repetition: number): SchemaElement {
  return { name, repetition, children: 0, fieldId: undefined, annotation: "", utcNanosAt: undefined, type: 4 };
}

function listsOf(...elements: readonly SchemaElement[]): (ListLevels | undefined)[] {
  return leavesOf([group("table", required, 1), ...elements]).leaves.map(({ list }) => list);
}

test.each([
  { outer: optional, element: optional },
  { outer: optional, element: required },
  { outer: required, element: optional },
  { outer: required, element: required },
])("a list in three levels is recognised, and what may be NULL in it: %o", ({ outer, element }) => {
  const found = listsOf(group("l", outer, 1, "list"), group("list", repeated, 1), leaf("element", element));
  expect(found).toEqual([{ isOptional: outer === optional, isElementOptional: element === optional }]);
});

test.each<{ what: string; elements: readonly SchemaElement[] }>([
  {
    what: "a group without an annotation",
    elements: [group("l", optional, 1), group("list", repeated, 1), leaf("e", optional)],
  },
  {
    what: "a group that is repeated",
    elements: [group("l", repeated, 1, "list"), group("list", repeated, 1), leaf("e", optional)],
  },
  {
    what: "a list of structs",
    elements: [group("l", optional, 1, "list"), group("list", repeated, 2), leaf("a", optional), leaf("b", optional)],
  },
  {
    what: "a list with a column beside it",
    elements: [group("l", optional, 2, "list"), group("list", repeated, 1), leaf("a", optional), leaf("b", optional)],
  },
  { what: "a list in two levels", elements: [group("l", optional, 1, "list"), leaf("array", repeated)] },
  {
    what: "elements that are repeated",
    elements: [group("l", optional, 1, "list"), group("list", repeated, 1), leaf("e", repeated)],
  },
  {
    what: "the entries of a map",
    elements: [group("l", optional, 1, "list"), group("key_value", repeated, 1, "other"), leaf("e", optional)],
  },
  {
    what: "a list of lists",
    elements: [
      group("l", optional, 1, "list"),
      group("list", repeated, 1),
      group("element", optional, 1, "list"),
      group("list", repeated, 1),
      leaf("e", optional),
    ],
  },
])("only DuckDB knows $what", ({ elements }) => {
  expect(new Set(listsOf(...elements))).toEqual(new Set([undefined]));
});

test("a group counts as a list only if its converted type says so, which is all that DuckDB asks for", () => {
  // Of an element of the schema: optional, `l`, one child; LIST as the converted and as the logical type.
  const [start, converted] = [
    [0x35, 2, 0x18, 1, 0x6c, 0x15, 2],
    [0x15, 6],
  ];
  const annotationOf = (...bytes: readonly number[]): string =>
    readElement({ bytes: Uint8Array.from([...start, ...bytes]), at: 0 }, 12, false).annotation;
  expect(annotationOf(...converted, 0)).toBe("list");
  expect(annotationOf(...converted, 0x4c, 0x3c, 0, 0, 0)).toBe("list");
  expect(annotationOf(0x5c, 0x3c, 0, 0, 0)).toBe("other");
});
