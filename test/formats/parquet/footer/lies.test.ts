import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import { scratchFolder } from "../../../support/job.js";
import { type TinyFile, tinyParquet } from "../../../support/parquet-bytes.js";
import { carryAll, readUnits, wholeSlice } from "../../../support/parquet-units.js";

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

describe("a page is read", () => {
  test("a correct page is read", async () => {
    expect(await read({})).toEqual(shown);
    expect(await read({ repetition: 1, levels: oneRun })).toEqual(shown);
    expect(await read({ dictionaryAt: 0 })).toEqual(shown); // some writers say so where there is none
  });

  test("a page with a long header is read", async () => {
    expect(await read({ statisticsBytes: 300_000 })).toEqual(shown);
  });
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
