import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { mebibytes, memoryBudget } from "#src/base/memory-budget.js";
import { readParquetFooter } from "#src/formats/parquet/footer.js";
import { firstBit, isOneRun, readRuns } from "#src/formats/parquet/pages/runs.js";
import { findUnfitPrefixes } from "#src/formats/parquet/readable-parts.js";
import { emptyContract, ref } from "../../../support/batches.js";
import { projectFolder } from "../../../support/cli.js";
import { scratch } from "../../../support/job.js";
import { packedRun, repeatedRun, varint } from "../../../support/parquet-runs.js";
import { randomOf } from "../../../support/random.js";
import { torture } from "../../../support/torture.js";

/** Reads them where other bytes lie before and behind. */
function read(runs: readonly number[], width: number, count: number): number[] {
  const bytes = Uint8Array.from([255, 255, ...runs, 255, 255, 255, 255]);
  const place = { at: 2, end: 2 + runs.length, width };
  const target = new Uint32Array(count + 2).fill(77);
  readRuns(bytes, place, target, count);
  expect([...target.subarray(count)]).toEqual([77, 77]);
  return [...target.subarray(0, count)];
}

test.each(Array.from({ length: 24 }, (_, index) => index + 1))(
  "numbers are read of %i bits, repeated and packed",
  (width) => {
    const random = randomOf(width);
    for (let round = 0; round < 20; round += 1) {
      const values: number[] = [];
      const runs: number[] = [];
      for (let left = Math.floor(random() * 6); left >= 0; left -= 1) {
        const count = 1 + Math.floor(random() * 40);
        if (random() < 0.5) {
          const value = Math.floor(random() * 2 ** width);
          runs.push(...repeatedRun(value, count, width));
          values.push(...Array.from({ length: count }, () => value));
        } else {
          // Only the last run may have room to spare.
          const size = left === 0 ? count : Math.ceil(count / 8) * 8;
          const some = Array.from({ length: size }, () => Math.floor(random() * 2 ** width));
          runs.push(...packedRun(some, width));
          values.push(...some);
        }
      }
      expect(read(runs, width, values.length)).toEqual(values);
    }
  },
);

test("numbers of zero bits are read as the only entry of a dictionary", () => {
  expect(read(repeatedRun(0, 5, 0), 0, 5)).toEqual([0, 0, 0, 0, 0]);
  expect(read([3], 0, 5)).toEqual([0, 0, 0, 0, 0]);
});

test("numbers are read from runs without values", () => {
  expect(read([], 3, 0)).toEqual([]);
  expect(read([0], 3, 0)).toEqual([]);
});

test("numbers are read from a last run with padding: DuckDB packs 256 at a time", () => {
  const filled = packedRun(
    Array.from({ length: 256 }, (_, index) => (index < 8 ? index : 0)),
    3,
  );
  expect(read(filled, 3, 8)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  expect(() => read([...filled, ...packedRun([1], 3)], 3, 8)).toThrow(RangeError);
});

test("numbers are read although unneeded bits at the end are missing", () => {
  expect(read(packedRun([1, 2, 3], 4).slice(0, 3), 4, 3)).toEqual([1, 2, 3]);
});

describe("runs are refused", () => {
  test.each<{ what: string; runs: readonly number[]; width?: number; count?: number }>([
    { what: "that are not there", runs: [] },
    { what: "whose head does not end", runs: [0x80] },
    { what: "whose value is not there", runs: varint(16) },
    { what: "whose value is half there", runs: [...varint(16), 1], width: 9 },
    { what: "whose packed bytes are not there", runs: packedRun([1, 2, 3, 4, 5, 6, 7, 0], 3).slice(0, 3) },
    { what: "that end too early", runs: repeatedRun(1, 7, 3) },
    { what: "of no numbers", runs: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] },
    { what: "of no groups", runs: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] },
    { what: "that are one number longer", runs: repeatedRun(1, 9, 3) },
    {
      what: "that are a group longer, which is not there",
      runs: packedRun([1, 2, 3, 4, 5, 6, 7, 0, 1], 3).slice(0, 6),
    },
    { what: "of 2^29 groups, which is no number in 32 bits", runs: [...varint(2 ** 30 + 1), 1, 2, 3] },
    { what: "of 2^31 numbers", runs: repeatedRun(1, 2 ** 31, 3) },
    { what: "whose length a reader of 32 bits would take for 8", runs: repeatedRun(1, 2 ** 31 + 8, 3) },
    { what: "of 2^60 groups", runs: [...varint(2 ** 60 + 1), 1, 2, 3] },
    { what: "whose head has more than ten bytes", runs: [...Array.from({ length: 11 }, () => 0x80), 1] },
    { what: "with a number of more bits", runs: repeatedRun(8, 8, 3) },
    { what: "with more behind them", runs: [...repeatedRun(1, 8, 3), 0] },
    { what: "of numbers that are too wide", runs: repeatedRun(1, 8, 32), width: 32 },
    { what: "of numbers of 255 bits", runs: [17, 1], width: 255 },
  ])("$what", ({ runs, width = 3, count = 8 }) => {
    expect(() => read(runs, width, count)).toThrow(RangeError);
  });

  test("runs that extend beyond the bytes are refused", () => {
    const target = new Uint8Array(16);
    expect(() => {
      readRuns(Uint8Array.from([5, 255]), { at: 0, end: 3, width: 1 }, target, 16);
    }).toThrow(RangeError);
  });
});

test("the first of some bits is read from a repeated and from a packed run", () => {
  const bytes = Uint8Array.from([255, ...repeatedRun(1, 3, 1), ...packedRun([0, 1, 1], 1)]);
  expect([1, 3].map((at) => firstBit(bytes, { at, end: bytes.length }))).toEqual([1, 0]);
});

const isOne = (runs: readonly number[]): boolean =>
  isOneRun(Uint8Array.from([...runs, 1, 1]), { at: 0, end: runs.length, value: 1 }, 100);

test("levels of rows that all have a value form one run", () => {
  expect(isOne(repeatedRun(1, 100, 1))).toBe(true);
});

test.each([
  { what: "of NULLs", runs: repeatedRun(0, 100, 1) },
  { what: "of a number that is no level", runs: repeatedRun(3, 100, 1) },
  { what: "that is shorter", runs: repeatedRun(1, 99, 1) },
  { what: "that is longer", runs: repeatedRun(1, 101, 1) },
  { what: "with another behind it", runs: [...repeatedRun(1, 100, 1), ...repeatedRun(0, 1, 1)] },
  { what: "without its value", runs: varint(200) },
  {
    what: "that is packed",
    runs: packedRun(
      Array.from({ length: 100 }, () => 1),
      1,
    ),
  },
])("levels of rows that all have a value are not a run $what", ({ runs }) => {
  expect(isOne(runs)).toBe(false);
});

test("bits are unpacked from any byte on, to any row", () => {
  const target = new Uint8Array(20);
  // A run of three, then two groups of eight.
  readRuns(Uint8Array.from([6, 0, 5, 0b1010_0101, 0b11]), { at: 0, end: 5, width: 1 }, target, 13);
  expect([...target]).toEqual([0, 0, 0, 1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0]);
});

const corpus = join(projectFolder, "fixtures/corpora/small/parquet-testing/data");
const plenty = memoryBudget(mebibytes(512));

async function faultOf(path: string, memory = plenty): Promise<string | undefined> {
  const footer = await readParquetFooter({ path });
  const passthrough = footer.leaves.map(({ path: [name = ""] }) => ({ column: name, source: ref(name, "utf8") }));
  const projection = { ...emptyContract, passthrough };
  const file = { path, name: path };
  const slice = { file, rowStart: 0, rowEnd: footer.rows, projection, partitions: new Map() };
  return (await findUnfitPrefixes(footer, slice, memory))?.error.message;
}

test.each(["delta_encoding_required_column", "delta_encoding_optional_column"])(
  "texts of %s, which share their beginnings, fit each other",
  async (name) => {
    const path = join(corpus, `${name}.parquet`);
    const { rowGroups } = await readParquetFooter({ path });
    expect(rowGroups[0]?.chunks.some(({ hasPrefixes }) => hasPrefixes)).toBe(true);
    expect(await faultOf(path)).toBeUndefined();
  },
);

test("a text that begins like more than the one before it has is found before any is made", async () => {
  const bytes = await readFile(join(corpus, "delta_encoding_required_column.parquet"));
  const path = join(scratch.path, "a.parquet");
  await writeFile(path, bytes);
  const chunk = (await readParquetFooter({ path })).rowGroups[0]?.chunks.find(({ hasPrefixes }) => hasPrefixes);
  const found = new Set<string>();
  const [start, end] = [chunk?.start ?? 0, (chunk?.start ?? 0) + (chunk?.compressedBytes ?? 0)];
  for (let at = start; at < end; at += torture ? 1 : 9) {
    const damaged = Buffer.from(bytes);
    damaged[at] = 0xff - (damaged[at] ?? 0);
    await writeFile(path, damaged);
    found.add(((await faultOf(path)) ?? "fine").replaceAll(/\d+/g, "N").replace(/^.*: /, ""));
  }
  expect(found).toContain("a text begins like N bytes of the one before it, which has N");
  expect([...found].filter((text) => text.includes("undefined"))).toEqual([]);
});

test("a page whose texts together take more than a page may is refused", async () => {
  const path = join(corpus, "delta_encoding_required_column.parquet");
  expect(await faultOf(path, { ...plenty, pageBytes: 100 })).toMatch(
    /row group 0 \(rows .*\), column `.+`: a page of texts that share their beginnings has [\d.]+ KiB when it is unpacked, more than 0.1 KiB/,
  );
});
