import { describe, expect, test } from "vitest";
import { firstBit, isOneRun, readRuns } from "#src/formats/parquet/pages/runs.js";
import { packedRun, repeatedRun, varint } from "../../../support/parquet-runs.js";
import { randomOf } from "../../../support/random.js";

/** Reads them where other bytes lie before and behind. */
function read(runs: readonly number[], width: number, count: number): number[] {
  const bytes = Uint8Array.from([255, 255, ...runs, 255, 255, 255, 255]);
  const place = { at: 2, end: 2 + runs.length, width };
  const target = new Uint32Array(count + 2).fill(77);
  readRuns(bytes, place, target, count);
  expect([...target.subarray(count)]).toEqual([77, 77]);
  return [...target.subarray(0, count)];
}

describe("numbers are read", () => {
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

describe("levels of rows that all have a value", () => {
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
});

test("bits are unpacked from any byte on, to any row", () => {
  const target = new Uint8Array(20);
  // A run of three, then two groups of eight.
  readRuns(Uint8Array.from([6, 0, 5, 0b1010_0101, 0b11]), { at: 0, end: 5, width: 1 }, target, 13);
  expect([...target]).toEqual([0, 0, 0, 1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0]);
});
