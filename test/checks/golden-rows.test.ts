import { describe, expect, test } from "vitest";
import { findDifferences, isComparable, isExpectedNotFinite } from "#src/checks/golden-rows.js";
import type { Column, ColumnType, NamedColumn } from "#src/columns/types.js";

const tolerance = { atol: 0.01, rtol: 0.1 };

function floats(values: readonly (number | null)[], type: "float32" | "float64" = "float64"): NamedColumn {
  const data = new (type === "float32" ? Float32Array : Float64Array)(values.map((value) => value ?? 0));
  return { name: "score", type, column: { kind: "fixed", elementsPerValue: 1, data, valid: validOf(values) } };
}

function integers(values: readonly bigint[]): NamedColumn {
  const data = BigInt64Array.from(values);
  return { name: "label", type: "int64", column: { kind: "fixed", elementsPerValue: 1, data, valid: undefined } };
}

function texts(values: readonly (string | null)[]): NamedColumn {
  const encoded = values.map((value) => Buffer.from(value ?? ""));
  const offsets = Uint32Array.from([
    0,
    ...encoded.map((_, index) => Buffer.concat(encoded.slice(0, index + 1)).length),
  ]);
  const column: Column = { kind: "bytes", offsets, bytes: Buffer.concat(encoded), valid: validOf(values) };
  return { name: "label", type: "utf8", column };
}

function lists(values: readonly (readonly number[])[]): NamedColumn {
  let end = 0;
  const offsets = Uint32Array.from([0, ...values.map(({ length }) => (end += length))]);
  const child = floats(values.flat()).column;
  const type: ColumnType = { kind: "list", element: "float64" };
  return { name: "vector", type, column: { kind: "list", offsets, child, valid: undefined } };
}

function validOf(values: readonly unknown[]): Uint8Array | undefined {
  return values.includes(null) ? Uint8Array.from(values, (value) => (value === null ? 0 : 1)) : undefined;
}

function found(expected: NamedColumn, predicted: NamedColumn, rowCount: number): ReturnType<typeof findDifferences> {
  return findDifferences([{ expected, predicted }], { rowCount, tolerance });
}

describe("golden rows", () => {
  test("golden rows may differ by atol + rtol * |expected| in floating-point numbers", () => {
    expect(found(floats([1, 1, 0, -2]), floats([1.109, 0.891, 0.0099, -2.2], "float32"), 4).rows).toBe(0);
    expect(found(floats([1, 1, 0, -2]), floats([1.12, 0.88, 0.02, -2.3]), 4)).toEqual({
      rows: 4,
      first: { row: 0, column: "score", expected: "1", found: "1.12" },
    });
  });

  test("golden rows accept NaN for NaN or NULL, and infinity only for the same infinity", () => {
    const { NaN: nan, POSITIVE_INFINITY: inf } = Number;
    expect(found(floats([nan, null, inf, -inf]), floats([nan, nan, inf, -inf]), 4).rows).toBe(0);
    expect(found(floats([nan, 1, inf, inf]), floats([1, nan, 1e300, -inf]), 4).rows).toBe(4);
  });

  test("golden rows compare integers exactly, also beyond 2^53 and of different widths", () => {
    expect(found(integers([2n ** 60n, 3n]), integers([2n ** 60n + 1n, 3n]), 2)).toEqual({
      rows: 1,
      first: { row: 0, column: "label", expected: String(2n ** 60n), found: String(2n ** 60n + 1n) },
    });
    expect(found(floats([1, 2.5]), integers([1n, 2n]), 2).rows).toBe(1);
  });

  test("golden rows compare texts exactly, and distinguish NULL from an empty text", () => {
    expect(found(texts(["a", "é"]), texts(["a", "é"]), 2).rows).toBe(0);
    expect(found(texts(["a", null, ""]), texts(["A", "", ""]), 3)).toEqual({
      rows: 2,
      first: { row: 0, column: "label", expected: '"a"', found: '"A"' },
    });
  });

  test("golden rows compare lists element by element, and name the element", () => {
    expect(found(lists([[1, 2], [], [3]]), lists([[1, 2], [], [3.2]]), 3).rows).toBe(0);
    expect(found(lists([[1, 2]]), lists([[1, 3]]), 1).first).toMatchObject({ column: "vector[1]", found: "3" });
    expect(found(lists([[1, 2]]), lists([[1]]), 1).first).toMatchObject({
      expected: "2 elements",
      found: "1 elements",
    });
  });

  test.each([
    ["float32", "float64", true],
    ["int64", "float32", true],
    ["utf8", "float32", false],
    ["bool", "int8", false],
    ["date32", "date32", false],
    [{ kind: "list", element: "float32" }, { kind: "list", element: "float64" }, true],
    [{ kind: "list", element: "float32" }, "float32", false],
  ] as const)(
    "golden rows of type %j can be compared with predictions of type %j: %s",
    (expected, predicted, comparable) => {
      expect(isComparable(expected, predicted)).toBe(comparable);
    },
  );

  test.each([
    ["nan", "NaN", true],
    [null, "NaN", true],
    ["inf", "Infinity", true],
    ["-inf", "Infinity", false],
    ["1.5", "NaN", false],
    ["[1.0, nan]", "NaN", true],
    ["nan", null, false],
  ])("golden rows that expect %s accept the prediction %s: %s", (expected, value, same) => {
    expect(isExpectedNotFinite(expected, value)).toBe(same);
  });
});
