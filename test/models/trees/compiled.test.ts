import { expect, test } from "vitest";
import { floatsOf } from "#src/models/trees/compiled.js";

const ulp = 2n ** 37n; // of a float32 from 2^60 on
const ofLongs = (...values: bigint[]): number[] => [
  ...(floatsOf({ dtype: "int64", dims: [1, values.length], data: BigInt64Array.from(values) }, false) ?? []),
];

test("whole numbers are rounded once to the nearest float32, ties to even", () => {
  const base = 2n ** 60n;
  const up = Number(base + ulp);
  expect(ofLongs(base + ulp / 2n, base + ulp / 2n + 1n, base + ulp / 2n - 1n)).toEqual([2 ** 60, up, 2 ** 60]);
  expect(ofLongs(-base - ulp / 2n, -base - ulp / 2n - 1n, -base - ulp / 2n + 1n)).toEqual([
    -(2 ** 60),
    -up,
    -(2 ** 60),
  ]);
  expect(ofLongs(base + ulp + ulp / 2n, base + ulp + ulp / 2n - 1n)).toEqual([Number(base + 2n * ulp), up]);
  expect(ofLongs(0n, -1n, 2n ** 24n + 1n, 2n ** 53n + 1n, 2n ** 63n - 1n, -(2n ** 63n))).toEqual([
    0,
    -1,
    2 ** 24,
    2 ** 53,
    2 ** 63,
    -(2 ** 63),
  ]);
  expect(floatsOf({ dtype: "int32", dims: [1, 2], data: Int32Array.of(2 ** 24 + 3, -7) }, false)).toEqual(
    Float32Array.of(2 ** 24 + 4, -7),
  );
});

test("rows of another type or length are not scored", () => {
  expect(floatsOf({ dtype: "int32", dims: [1, 1], data: Int32Array.of(1) }, true)).toBeUndefined();
  expect(floatsOf({ dtype: "float32", dims: [2, 1], data: Float32Array.of(1) }, false)).toBeUndefined();
  expect(floatsOf({ dtype: "uint8", dims: [1, 1], data: Uint8Array.of(1) }, false)).toBeUndefined();
});
