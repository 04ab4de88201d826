import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  columnJson,
  type ColumnProfile,
  countedValues,
  mergeColumns,
  namedRows,
  parseColumn,
  profileColumn,
  quantileOf,
  valueText,
} from "#src/checks/profile/column.js";
import { keyOfNumber, rangeOfBin } from "#src/checks/profile/histogram.js";
import {
  mergeSketches,
  noRowsSketched,
  repeatedShare,
  type RowSketch,
  sketchRows,
} from "#src/checks/profile/profile-loops.js";
import type { Column, ColumnType } from "#src/columns/types.js";
import { listColumn, textColumn } from "../../support/batches.js";
import { normals } from "../../support/run-profiles.js";

const whole = { nameBytes: 4096, namedRows: 1 };
const fixed = (data: Float64Array<ArrayBuffer>): Column => ({
  kind: "fixed",
  elementsPerValue: 1,
  data,
  valid: undefined,
});
const numbers = (values: readonly number[], bins = 100): ColumnProfile =>
  profileColumn({ name: "x", type: "float64" }, fixed(Float64Array.from(values)), bins);
const texts = (values: readonly string[], bins = 100): ColumnProfile =>
  profileColumn({ name: "x", type: "utf8" }, textColumn(values), bins);
const vectors = (values: readonly (readonly number[])[]): ColumnProfile => {
  const type: ColumnType = { kind: "list", element: "float32" };
  return profileColumn({ name: "x", type }, listColumn("float32", values), 100);
};

function merged(parts: readonly ColumnProfile[], bins: number): string {
  const read = parts.map((part) => parseColumn(columnJson(part, whole)));
  const all = read.reduce((first, second) => mergeColumns(first, second, bins));
  return JSON.stringify(columnJson(all, whole));
}

const cuts = fc.array(fc.nat(200), { maxLength: 6 });

function partsOf<T>(values: readonly T[], at: readonly number[]): T[][] {
  const ends = [0, ...at.map((cut) => cut % (values.length + 1)).toSorted((a, b) => a - b), values.length];
  return ends.slice(1).map((end, index) => values.slice(ends[index], end));
}

describe("the profile of a column", () => {
  test("the profile of numbers is the same however its rows are divided, and in which order its parts are merged", () => {
    const any = fc.array(fc.oneof(fc.double(), fc.integer({ min: -5, max: 300 }), fc.constantFrom(0, 1e300, -1e-300)), {
      minLength: 1,
      maxLength: 200,
    });
    fc.assert(
      fc.property(any, cuts, fc.integer({ min: 2, max: 60 }), (values, at, bins) => {
        const parts = partsOf(values, at).map((part) => numbers(part, bins));
        const pieces = parts.reduce((first, second) => mergeColumns(first, second, bins)); // of one span
        expect(merged([pieces], bins)).toBe(merged([numbers(values, bins)], bins));
        expect(merged(parts.toReversed(), bins)).toBe(merged(parts, bins));
      }),
      {
        examples: [
          [[-9.98e291, 0, 1e300, Number.MAX_VALUE], [66], 2],
          [[1e300, 3.98e277, 1e300, 0], [26], 2],
        ],
      },
    );
  });

  test("the profile of texts is the same however its rows are divided", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ maxLength: 3 }), { minLength: 1, maxLength: 200 }), cuts, (values, at) => {
        const parts = partsOf(values, at).map((part) => texts(part, 20));
        expect(merged(parts, 20)).toBe(merged([texts(values, 20)], 20));
      }),
    );
  });

  test("the profile of vectors is the same however its rows are divided", () => {
    const values = normals(300).map((value, row) => [value, row % 7, 1]);
    const parts = partsOf(values, [7, 100, 180]).map(vectors);
    expect(merged(parts.toReversed(), 100)).toBe(merged([vectors(values)], 100));
  });

  test("each number is in the range of its bin, at each width", () => {
    fc.assert(
      fc.property(
        fc.double({ noNaN: true, noDefaultInfinity: true }),
        fc.integer({ min: 0, max: 31 }),
        (value, shift) => {
          const [low, high] = rangeOfBin(Math.floor(keyOfNumber(value) / 2 ** shift), shift);
          expect(value >= low && value <= high).toBe(true);
        },
      ),
    );
  });

  test("bins are as fine as their number allows: few values have one each, many are within a few percent", () => {
    expect(countedValues(numbers([0.1, 0.1, 7, -3]))).toHaveLength(3);
    const many = numbers(normals(20_000, { mean: 1000, deviation: 200 }), 64);
    expect(countedValues(many)).toBeUndefined();
    for (const [share, due] of [
      [0.1, 743.7],
      [0.5, 1000],
      [0.9, 1256.3],
    ] as const) {
      expect(Math.abs((quantileOf(many, share) ?? 0) / due - 1)).toBeLessThan(0.03);
    }
  });

  test.each([
    [[0, 0, 0, 1], 0.5, 0],
    [[18.9, 18.9], 0.5, 18.9],
    [[-5, -5, -5], 0.5, -5],
    [[1, 2, 3], 1, 3],
  ])("the quantile of %j at %d is %d", (values, share, due) => {
    expect(quantileOf(numbers(values), share)).toBe(due);
  });

  test("NaN, infinities and NULL are counted apart, and sums have all digits", () => {
    const found = numbers([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 1e16, 0.25, -1e16]);
    expect(found).toMatchObject({ rows: 6, nan: 1, infinite: [1, 1], min: -1e16, max: 1e16 });
    expect(found.kind === "numbers" && found.sum[0]).toBe(0.25);
  });

  test("a value of a feature has a name from as many rows on as hide a person, and that of an output always", () => {
    const values = [...Array<string>(namedRows).fill("often"), ...Array<string>(namedRows - 1).fill("seldom")];
    const named = (limits: typeof whole): string[] => {
      const column = parseColumn(columnJson(texts(values), limits));
      return (countedValues(column) ?? [])
        .map(({ key }) => valueText(column, key) ?? "~")
        .toSorted((a, b) => (a < b ? -1 : 1));
    };
    expect(named(whole)).toEqual(["often", "seldom"]);
    expect(named({ ...whole, namedRows })).toEqual(["often", "~"]);
  });

  test("equal texts in columns of other names have other hashes", () => {
    const [a, b] = ["a", "b"].map((name) => profileColumn({ name, type: "utf8" }, textColumn(["Ana"]), 10));
    expect(countedValues(a ?? expect.fail())).not.toEqual(countedValues(b ?? expect.fail()));
  });
});

function rowsOf(values: readonly string[]): RowSketch {
  return sketchRows([{ name: "id", type: "utf8", column: textColumn(values) }], values.length);
}

describe("rows that repeat", () => {
  const ids = Array.from({ length: 5000 }, (_, id) => `row ${id}`);

  test.each([
    ["no row is there twice", ids, 0],
    ["each row is there twice", [...ids, ...ids], 0.5],
    ["all rows are the same", ids.map(() => "same"), 1 - 1 / 5000],
  ])("%s", (_, values, share) => {
    expect(repeatedShare(rowsOf(values))).toBeCloseTo(share, 2);
  });

  test("the rows that are counted do not depend on how they are divided", () => {
    const parts = partsOf([...ids, ...ids.slice(0, 900)], [10, 150, 199]).map(rowsOf);
    const all = rowsOf([...ids, ...ids.slice(0, 900)]);
    expect(parts.reduce(mergeSketches, noRowsSketched)).toEqual(all);
    expect(parts.toReversed().reduce(mergeSketches)).toEqual(all);
    expect(all.hashes.length).toBeLessThanOrEqual(256);
  });
});
