import { describe, expect, test } from "vitest";
import {
  type Agreement,
  compareRows,
  matchColumns,
  measure,
  type Measures,
  mergeAgreements,
} from "#src/checks/agreement/agreement.js";
import { limitSample, mergeSamples, type RankSample } from "#src/checks/agreement/rank-sample.js";
import type { Column, ColumnType, NamedColumn } from "#src/columnar/types.js";

const floats = (values: readonly (number | null)[]): Column => ({
  kind: "fixed",
  elementsPerValue: 1,
  data: Float32Array.from(values, (value) => value ?? 0),
  valid: values.includes(null) ? Uint8Array.from(values, (value) => (value === null ? 0 : 1)) : undefined,
});

const integers = (values: readonly number[]): Column => ({
  kind: "fixed",
  elementsPerValue: 1,
  data: BigInt64Array.from(values, BigInt),
  valid: undefined,
});

function texts(values: readonly string[]): Column {
  const encoded = values.map((value) => new TextEncoder().encode(value));
  let end = 0;
  const offsets = Uint32Array.from([0, ...encoded.map((bytes) => (end += bytes.length))]);
  return { kind: "bytes", offsets, bytes: new TextEncoder().encode(values.join("")), valid: undefined };
}

function vectors(values: readonly (readonly number[])[]): Column {
  let end = 0;
  const offsets = Uint32Array.from([0, ...values.map((value) => (end += value.length))]);
  return { kind: "list", offsets, child: floats(values.flat()), valid: undefined };
}

const list: ColumnType = { kind: "list", element: "float32" };

interface Case {
  readonly type: ColumnType;
  readonly otherType?: ColumnType;
  readonly one: Column;
  readonly other: Column;
  readonly rows: number;
  readonly firstRow?: number;
}

const named = (column: Column, type: ColumnType): NamedColumn[] => [{ name: "score", type, column }];

function agreementOf({ type, otherType = type, one, other, rows, firstRow = 0 }: Case): Agreement {
  return compareRows(
    {
      rowNumbers: Float64Array.from({ length: rows }, (_row, index) => firstRow + index),
      one: named(one, type),
      other: named(other, otherType),
    },
    { compared: ["score"], tolerance: 0.25 },
  );
}

function measuresOf<K extends Measures["kind"]>(agreement: Agreement, kind: K): Extract<Measures, { kind: K }> {
  const column = agreement.get("score");
  const measures = column === undefined ? undefined : measure(column);
  expect(measures?.kind).toBe(kind);
  return measures as Extract<Measures, { kind: K }>;
}

describe("numbers", () => {
  test("two columns of numbers are compared by mean and largest difference, rank correlation and rows beyond the tolerance", () => {
    const one = floats([1, 2, 3, 4, 5]);
    const other = floats([1, 2.5, 3.25, 4, 3]);
    const found = measuresOf(agreementOf({ type: "float32", one, other, rows: 5 }), "numbers");
    expect(found).toMatchObject({ rows: 5, meanDifference: 2.75 / 5, largestDifference: 2, beyond: 2, rankedRows: 5 });
    // scipy.stats.spearmanr([1, 2, 3, 4, 5], [1, 2.5, 3.25, 4, 3]).statistic
    expect(found.rankCorrelation).toBeCloseTo(0.7, 12);
    expect(found.most.map(({ row, distance }) => [row, distance])).toEqual([
      [4, 2],
      [1, 0.5],
      [2, 0.25],
    ]);
  });

  test("equal numbers share the mean of their ranks in the rank correlation", () => {
    const one = floats([1, 1, 2, 3]);
    const other = floats([1, 2, 2, 3]);
    const found = measuresOf(agreementOf({ type: "float32", one, other, rows: 4 }), "numbers");
    // scipy.stats.spearmanr([1, 1, 2, 3], [1, 2, 2, 3]).statistic
    expect(found.rankCorrelation).toBeCloseTo(0.8333333333333334, 12);
  });

  test("a number differs from NULL, NaN and infinity by more than every tolerance, and each of these equals itself", () => {
    const one = floats([1, null, Number.NaN, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]);
    const other = floats([null, null, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]);
    const found = measuresOf(agreementOf({ type: "float32", one, other, rows: 5 }), "numbers");
    expect(found.beyond).toBe(2);
    expect(found.meanDifference).toBeNaN();
    expect(found.most).toEqual([
      { row: 0, distance: Number.POSITIVE_INFINITY, one: "1", other: "NULL" },
      { row: 4, distance: Number.POSITIVE_INFINITY, one: "Infinity", other: "-Infinity" },
    ]);
  });

  test("the PSI of predictions that move by a whole decile is high, and that of equal ones is zero", () => {
    const values = Array.from({ length: 1000 }, (_value, index) => index + 1);
    const one = floats(values);
    const same = measuresOf(agreementOf({ type: "float32", one, other: one, rows: 1000 }), "numbers");
    expect(same.psi).toBe(0);
    const moved = floats(values.map((value) => value + 500));
    const found = measuresOf(agreementOf({ type: "float32", one, other: moved, rows: 1000 }), "numbers");
    expect(found.psi).toBeGreaterThan(1);
  });

  test("float32 and float64 predictions are compared by their values", () => {
    const one = floats([1, 2]);
    const other: Column = { kind: "fixed", elementsPerValue: 1, data: Float64Array.of(1, 2.5), valid: undefined };
    const agreement = agreementOf({ type: "float32", otherType: "float64", one, other, rows: 2 });
    expect(measuresOf(agreement, "numbers")).toMatchObject({ largestDifference: 0.5, beyond: 1 });
  });
});

describe("labels", () => {
  test("two columns of labels are compared by the share of equal labels and a table of flips, the most frequent first", () => {
    const one = texts(["a", "a", "b", "b", "c"]);
    const other = texts(["a", "b", "a", "a", "c"]);
    const found = measuresOf(agreementOf({ type: "utf8", one, other, rows: 5 }), "labels");
    expect(found).toMatchObject({ rows: 5, equal: 2 });
    expect(found.flips).toEqual([
      { one: '"b"', other: '"a"', rows: 2 },
      { one: '"a"', other: '"b"', rows: 1 },
    ]);
    expect(found.most.map(({ row }) => row)).toEqual([1, 2, 3]);
  });

  test("integer labels of different widths are equal when their numbers are", () => {
    const other: Column = { kind: "fixed", elementsPerValue: 1, data: Int32Array.of(1, 3), valid: undefined };
    const agreement = agreementOf({ type: "int64", otherType: "int32", one: integers([1, 2]), other, rows: 2 });
    expect(measuresOf(agreement, "labels")).toMatchObject({ equal: 1, flips: [{ one: "2", other: "3", rows: 1 }] });
  });

  test("flips are reported as too many when they have more different pairs than are stored", () => {
    const rows = 300;
    const one = integers(Array.from({ length: rows }, (_value, index) => index));
    const other = integers(Array.from({ length: rows }, (_value, index) => index + 1));
    const found = measuresOf(agreementOf({ type: "int64", one, other, rows }), "labels");
    expect(found).toMatchObject({ equal: 0, flips: [] });
    expect(found.most).toHaveLength(10);
  });
});

test("two columns of vectors are compared by the mean and the lowest cosine, and vectors without a direction are counted", () => {
  const one = vectors([[1, 0], [1, 1], [0, 0], [1], [0, 0]]); // biome-ignore format: one row a vector
  const other = vectors([[0, 2], [2, 2], [0, 1], [1, 1], [0, 0]]); // biome-ignore format: one row a vector
  const found = measuresOf(agreementOf({ type: list, one, other, rows: 5 }), "vectors");
  expect(found).toMatchObject({ rows: 5, lowestCosine: 0, without: 2 });
  expect(found.meanCosine).toBeCloseTo(2 / 3, 12);
  expect(found.most.map(({ row }) => row).slice(0, 3)).toEqual([2, 3, 0]);
});

function sampleOf(from: number, to: number): RankSample {
  const rows = Float64Array.from({ length: to - from }, (_row, index) => from + index);
  return limitSample({ level: 0, rows, one: rows, other: rows }, 100);
}

describe("merging", () => {
  const pieces = Array.from({ length: 5 }, (_piece, piece) => {
    const value = (index: number): number => Math.sin(piece * 100 + index);
    const one = Array.from({ length: 100 }, (_row, index) => value(index));
    const other = one.map((number, index) => number + (index % 7 === 0 ? 0.5 : 0.001 * index));
    return { one, other, firstRow: piece * 100 };
  });
  const partOf = ({ one, other, firstRow }: (typeof pieces)[number]): Agreement =>
    agreementOf({ type: "float32", one: floats(one), other: floats(other), rows: one.length, firstRow });

  test("the figures of a comparison do not depend on how rows are divided or merged", () => {
    const whole = partOf({
      one: pieces.flatMap(({ one }) => one),
      other: pieces.flatMap(({ other }) => other),
      firstRow: 0,
    });
    const parts = pieces.map(partOf);
    const forward = parts.reduce((one, other) => mergeAgreements(one, other));
    const backward = parts.toReversed().reduce((one, other) => mergeAgreements(one, other));
    expect(measuresOf(forward, "numbers")).toEqual(measuresOf(whole, "numbers"));
    expect(measuresOf(backward, "numbers")).toEqual(measuresOf(whole, "numbers"));
  });

  test("a rank sample has at most its limit of rows, and does not depend on the order of merging", () => {
    const whole = sampleOf(0, 1000);
    expect(whole.rows.length).toBeLessThanOrEqual(100);
    expect(whole.rows.length).toBeGreaterThan(30);
    const [a, b, c] = [sampleOf(0, 10), sampleOf(10, 700), sampleOf(700, 1000)];
    const orders = [
      mergeSamples(c, mergeSamples(b, a, 100), 100),
      mergeSamples(a, mergeSamples(b, c, 100), 100),
      mergeSamples(sampleOf(0, 10), sampleOf(10, 1000), 100),
    ];
    for (const merged of orders) {
      expect(merged.level).toBe(whole.level);
      expect([...merged.rows].toSorted((one, other) => one - other)).toEqual([...whole.rows]);
    }
  });
});

test("columns that only one model has, or whose types differ, are reported and not compared", () => {
  const one = [
    { name: "score", type: "float32" as const },
    { name: "label", type: "int64" as const },
    { name: "old", type: "utf8" as const },
  ];
  const other = [
    { name: "label", type: "utf8" as const },
    { name: "score", type: "float64" as const },
    { name: "vector", type: list },
  ];
  expect(matchColumns(one, other)).toEqual({
    compared: ["score"],
    apart: [
      { name: "label", reason: "int64 in A, utf8 in B" },
      { name: "old", reason: "only A has it (utf8)" },
      { name: "vector", reason: "only B has it (list<float32>)" },
    ],
  });
});
