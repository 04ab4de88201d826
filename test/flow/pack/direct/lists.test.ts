import { describe, expect, test } from "vitest";
import type { NumericTensorType } from "#src/models/binding/contract.js";
import type { ListColumn } from "#src/columns/types.js";
import type { ElementType } from "#src/columns/values.js";
import { castOf, castLists } from "#src/flow/pack/direct.js";
import { listColumn } from "../../../support/batches.js";

const rules = { cast: "exact", missing: "bad_row" } as const;

function listsOf({ offsets, child, valid }: ListColumn): unknown[] {
  if (child.kind !== "fixed") {
    throw new TypeError("numbers were due");
  }
  const numbers = Array.from<number | bigint>(child.data).map((value, at) => (child.valid?.[at] === 0 ? null : value));
  return Array.from({ length: offsets.length - 1 }, (_, row) =>
    valid?.[row] === 0 ? null : numbers.slice(offsets[row], offsets[row + 1]),
  );
}

const lists = [[9, 9, 9], [1], null, [], [2, null, 3], [4]];

test.each([
  ["int32", "int64"],
  ["int64", "int64"],
  ["uint8", "float32"],
  ["float64", "float32"],
] as [ElementType, NumericTensorType][])(
  "rows of lists from the middle of a column of %s become lists of %s",
  (from, dtype) => {
    const cast = castOf(from, dtype, rules) ?? "copy";
    const found = castLists(dtype, listColumn(from, lists), cast, { from: 1, to: 5, missing: "bad_row" });
    const numbers = [[1], null, [], [2, null, 3]];
    const asDue = (value: number | null): unknown => (value === null || dtype !== "int64" ? value : BigInt(value));
    expect(listsOf(found)).toEqual(numbers.map((list) => list && list.map(asDue)));
  },
);

test("rows of lists from the middle of a column have NaN for NULL if missing values are NaN", () => {
  const options = { from: 4, to: 5, missing: "nan" } as const;
  expect(listsOf(castLists("float32", listColumn("float32", lists), "copy", options))).toEqual([[2, Number.NaN, 3]]);
});

describe("integers of up to 32 bits become ones of 64", () => {
  test.each([
    ["int8", "int64", [-128, 127, 0]],
    ["int32", "int64", [-(2 ** 31), -1, 2 ** 31 - 1]],
    ["uint16", "int64", [65535]],
    ["uint32", "int64", [2 ** 32 - 1, 2 ** 31]],
    ["uint32", "uint64", [2 ** 32 - 1, 0]],
  ] as [ElementType, NumericTensorType, number[]][])("%s as %s", (from, dtype, values) => {
    expect(castOf(from, dtype, rules)).toBe("widen");
    const found = castLists(dtype, listColumn(from, [values]), "widen", { from: 0, to: 1, missing: "bad_row" });
    expect(listsOf(found)).toEqual([values.map(BigInt)]);
  });

  test.each([
    ["int8", "uint64"],
    ["uint64", "int64"],
    ["float32", "int64"],
  ] as const)("lists of %s are not copied as %s, because the values must be checked", (from, dtype) => {
    expect(castOf(from, dtype, rules)).toBeUndefined();
  });
});
