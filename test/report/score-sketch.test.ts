import { describe, expect, test } from "vitest";
import type { Column, ColumnType } from "#src/columnar/types.js";
import type { Values } from "#src/columnar/values.js";
import { createScoreSketch, type ScoreSummary } from "#src/report/score-sketch.js";
import { textColumn } from "../support/batches.js";

const fixed = (data: Values): Column => ({ kind: "fixed", lanes: 1, data, valid: undefined });

function summaryOf(type: ColumnType, ...columns: readonly Column[]): ScoreSummary {
  const sketch = createScoreSketch("score", type);
  for (const column of columns) {
    sketch?.add(column);
  }
  const summary = sketch?.summary();
  if (summary === undefined) {
    throw new Error("there is no summary");
  }
  return summary;
}

function numbers(type: ColumnType, ...columns: readonly Column[]): Extract<ScoreSummary, { kind: "numbers" }> {
  const summary = summaryOf(type, ...columns);
  if (summary.kind !== "numbers") {
    throw new Error(`it is of ${summary.kind}`);
  }
  return summary;
}

const total = (bins: readonly number[]): number => bins.reduce((sum, count) => sum + count, 0);

describe("numbers", () => {
  test("of spans that are small are counted, each of them", () => {
    const found = numbers("float32", fixed(Float32Array.of(0, 0.25, 0.5)), fixed(Float32Array.of(0.75, 1)));
    expect(found).toMatchObject({ values: 5, sampled: 5, min: 0, max: 1, mean: 0.5 });
    expect(total(found.bins)).toBe(5);
    expect([found.bins[0], found.bins[6], found.bins[12], found.bins[18], found.bins.at(-1)]).toEqual([1, 1, 1, 1, 1]);
  });

  test("below zero and of any size come in their order", () => {
    const found = numbers("float64", fixed(Float64Array.of(-1000, -1000, -1, 0.001, 1000)));
    expect([found.min, found.max, found.bins[0], found.bins.at(-1)]).toEqual([-1000, 1000, 2, 1]);
    expect(total(found.bins)).toBe(5);
  });

  test("that are all one have one bin", () => {
    expect(total(numbers("float32", fixed(new Float32Array(9).fill(0.3))).bins)).toBe(9);
  });

  test("beyond float32 lose no value", () => {
    expect(total(numbers("float64", fixed(Float64Array.of(1e300, -1e300, 0.5))).bins)).toBe(3);
  });

  test("of large spans are looked at here and there, and stand for all", () => {
    // Rows that come in turns would fool whoever takes each n-th.
    const rows = 2 ** 20;
    const data = Float32Array.from({ length: rows }, (_, row) => (row % 2 === 0 ? 0.1 : 0.9) + (row % 3) * 1e-3);
    const found = numbers("float32", fixed(data), fixed(Float32Array.of(0.1, 0.9)));
    expect([found.values, total(found.bins)]).toEqual([rows + 2, rows + 2]);
    expect(found.sampled).toBe(16_384 + 2);
    const low = total(found.bins.slice(0, 12)) / rows;
    expect(low).toBeGreaterThan(0.48);
    expect(low).toBeLessThan(0.52);
    expect(found.mean).toBeCloseTo(0.501, 1);
  });

  test("of a list column are its elements", () => {
    const child = fixed(Float32Array.of(0.5, 1.5, 2.5, 3.5));
    const column: Column = { kind: "list", offsets: Uint32Array.of(0, 2, 4), child, valid: undefined };
    expect(numbers({ kind: "list", element: "float32" }, column)).toMatchObject({ values: 4, min: 0.5, max: 3.5 });
  });
});

describe("a few different values", () => {
  test("of whole numbers have a count each", () => {
    expect(summaryOf("int64", fixed(BigInt64Array.of(2n, 0n, 2n, -1n)))).toEqual({
      column: "score",
      kind: "values",
      values: 4,
      sampled: 4,
      counts: [
        { value: "-1", count: 1 },
        { value: "0", count: 1 },
        { value: "2", count: 2 },
      ],
      others: 0,
    });
  });

  test("of large whole numbers are a range", () => {
    expect(numbers("int64", fixed(BigInt64Array.of(1n, 2n ** 60n))).max).toBe(2 ** 60);
  });

  test("of texts and truths have a count each, most first", () => {
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

  test("of texts without end are counted as others", () => {
    const found = summaryOf("utf8", textColumn(Array.from({ length: 1000 }, (_, row) => `text ${row}`)));
    expect(found).toMatchObject({ kind: "values", values: 1000, others: 952 });
  });
});

test("nothing is said of a column without a value, and of one that no model predicts", () => {
  expect(createScoreSketch("score", "float32")?.summary()).toBeUndefined();
  expect(createScoreSketch("score", { kind: "struct", fields: [] })).toBeUndefined();
});
