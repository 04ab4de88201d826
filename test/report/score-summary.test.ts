import { describe, expect, test } from "vitest";
import { mergeColumns, profileColumn } from "#src/checks/profile/column.js";
import type { Column, ColumnType } from "#src/columns/types.js";
import type { Values } from "#src/columns/values.js";
import { type ScoreSummary, scoreSummary } from "#src/report/column-stats.js";
import { textColumn } from "../support/batches.js";

const fixed = (data: Values): Column => ({ kind: "fixed", elementsPerValue: 1, data, valid: undefined });
const mostBins = 400;

function summaryOf(type: ColumnType, ...columns: readonly Column[]): ScoreSummary | undefined {
  const profile = columns
    .map((column) => profileColumn({ name: "score", type }, column, mostBins))
    .reduce((one, other) => mergeColumns(one, other, mostBins));
  return scoreSummary("score", profile);
}

function numbers(type: ColumnType, ...columns: readonly Column[]): Extract<ScoreSummary, { kind: "numbers" }> {
  const summary = summaryOf(type, ...columns);
  if (summary?.kind !== "numbers") {
    throw new Error(`it is of ${summary?.kind}`);
  }
  return summary;
}

const total = (bins: readonly number[]): number => bins.reduce((sum, count) => sum + count, 0);

describe("a summary of numbers", () => {
  test("a summary of numbers counts each of them in 24 equal steps", () => {
    const found = numbers("float32", fixed(Float32Array.of(0, 0.25, 0.5)), fixed(Float32Array.of(0.75, 1)));
    expect(found).toMatchObject({ values: 5, min: 0, max: 1, mean: 0.5 });
    expect([found.bins[0], found.bins[6], found.bins[12], found.bins[18], found.bins.at(-1)]).toEqual([1, 1, 1, 1, 1]);
    expect(total(found.bins)).toBe(5);
  });

  test("a summary of numbers orders negative numbers and numbers of any size", () => {
    const found = numbers("float64", fixed(Float64Array.of(-1000.5, -1000.5, -1, 0.001, 1000)));
    expect([found.min, found.max, found.bins[0], found.bins.at(-1)]).toEqual([-1000.5, 1000, 2, 1]);
    expect(total(found.bins)).toBe(5);
  });

  test("a summary of equal numbers has one step", () => {
    expect(total(numbers("float32", fixed(new Float32Array(9).fill(0.3))).bins)).toBe(9);
  });

  test("a summary of numbers counts numbers beyond the range of float32", () => {
    expect(total(numbers("float64", fixed(Float64Array.of(1e300, -1e300, 0.5))).bins)).toBe(3);
  });

  test("a summary of numbers is exact for a large span", () => {
    const rows = 2 ** 20;
    const data = Float32Array.from({ length: rows }, (_, row) => (row % 4 === 0 ? 0.25 : 0.75));
    const found = numbers("float32", fixed(data), fixed(Float32Array.of(0, 1)));
    expect(found).toMatchObject({ values: rows + 2, mean: (rows * 0.625 + 1) / (rows + 2) });
    expect(total(found.bins.slice(0, 12))).toBe(rows / 4 + 1);
    expect(total(found.bins)).toBe(rows + 2);
  });

  test("a summary of vectors describes their norms", () => {
    const child = fixed(Float32Array.of(3, 4, 0, 1, 5, 12));
    const column: Column = { kind: "list", offsets: Uint32Array.of(0, 2, 4, 6), child, valid: undefined };
    expect(numbers({ kind: "list", element: "float32" }, column)).toMatchObject({
      of: "norm, 2 dimensions",
      values: 3,
      min: 1,
      max: 13,
    });
  });
});

describe("a summary of few different values", () => {
  test("a summary of few different values counts each whole number, the lowest first", () => {
    expect(summaryOf("int64", fixed(BigInt64Array.of(2n, 0n, 2n, -1n)))).toEqual({
      column: "score",
      kind: "values",
      values: 4,
      counts: [
        { value: "-1", count: 1 },
        { value: "0", count: 1 },
        { value: "2", count: 2 },
      ],
      others: 0,
    });
  });

  test("a summary of few different values counts each text and truth, the most frequent first", () => {
    expect(summaryOf("utf8", textColumn(["b", "a", "b", "é"]))).toMatchObject({
      counts: [
        { value: "b", count: 2 },
        { value: "a", count: 1 },
        { value: "é", count: 1 },
      ],
    });
    expect(summaryOf("bool", fixed(Uint8Array.of(1, 0, 1)))).toMatchObject({
      counts: [
        { value: "true", count: 2 },
        { value: "false", count: 1 },
      ],
    });
  });

  test("a summary of few different values counts those of rare texts exactly", () => {
    const rows = 100_000;
    const texts = Array.from({ length: rows }, (_, row) => (row === 77_777 ? "rare" : "common"));
    expect(summaryOf("utf8", textColumn(texts))).toMatchObject({
      counts: [
        { value: "common", count: rows - 1 },
        { value: "rare", count: 1 },
      ],
    });
  });

  test("a summary of many different values has the 48 most frequent, and the count of all others", () => {
    const texts = Array.from({ length: 1000 }, (_, row) => `text ${row % 100}`);
    const found = summaryOf("utf8", textColumn(texts));
    expect(found).toMatchObject({ kind: "values", values: 1000, others: 520 });
    expect(found?.kind === "values" && found.counts.length).toBe(48);
  });

  test("a summary of almost unique values has only the number of values", () => {
    const found = summaryOf("utf8", textColumn(Array.from({ length: 1000 }, (_, row) => `text ${row}`)));
    expect(found).toMatchObject({ kind: "values", values: 1000, counts: [], others: 1000 });
  });
});

test("nothing is said of a column without a value, and of one whose values are no predictions", () => {
  expect(summaryOf("float32", fixed(new Float32Array(0)))).toBeUndefined();
  expect(summaryOf("utf8", textColumn([]))).toBeUndefined();
  expect(
    summaryOf({ kind: "struct", fields: [] }, { kind: "struct", rowCount: 0, children: [], valid: undefined }),
  ).toBeUndefined();
});
