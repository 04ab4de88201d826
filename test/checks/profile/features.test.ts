import { expect, test } from "vitest";
import {
  createFeatureRows,
  type FeatureColumn,
  type FeaturePlan,
  measureFeatures,
} from "#src/checks/profile/features.js";
import type { Matrix } from "#src/columns/types.js";

const matrix = (values: readonly number[], width: number, valid?: readonly number[]): Matrix => ({
  kind: "matrix",
  width,
  data: Float32Array.from(values),
  valid: valid && Uint8Array.from(valid),
});

test("columns of matrices have the elements of all batches, and NULLs of those that have some", () => {
  const number = (name: string, place: number): FeatureColumn => ({
    name,
    kind: "number",
    type: "float32",
    input: 1,
    place,
  });
  const vector: FeatureColumn = {
    name: "v",
    kind: "vector",
    type: { kind: "list", element: "float32" },
    input: 0,
    place: 0,
  };
  const plan: FeaturePlan = {
    columns: [number("a", 0), number("b", 1), vector],
    left: [],
    spanRows: 100,
    every: 1,
    bins: 60,
  };
  const rows = createFeatureRows(plan);
  rows.add(
    measureFeatures(plan, [matrix([3, 4, 0, 1], 2), matrix([1, 10, 99, 2, 20, 99], 3)], {
      from: 0,
      to: 2,
      firstRow: 0,
    }),
  );
  rows.add(
    measureFeatures(plan, [matrix([5, 12], 2, [0, 0]), matrix([3, 30, 99], 3, [0, 1, 1])], {
      from: 0,
      to: 1,
      firstRow: 2,
    }),
  );
  expect(Object.fromEntries(rows.finish())).toMatchObject({
    a: { rows: 3, nulls: 1, min: 1, max: 2, sum: [3, 0] },
    b: { rows: 3, nulls: 0, min: 10, max: 30, sum: [60, 0] },
    v: { rows: 3, nulls: 1, dimensions: [2, 2] },
  });
});
