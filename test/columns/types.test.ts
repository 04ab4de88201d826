import { describe, expect, test } from "vitest";
import { bytesPerValue, type ColumnType, layoutOf, scalarTypes, showType } from "#src/columns/types.js";
import { allocate, bytesPerElement, copyValues, type ElementType, isElementType, viewOf } from "#src/columns/values.js";

const elementTypes: readonly ElementType[] = [
  "int8",
  "int16",
  "int32",
  "int64",
  "uint8",
  "uint16",
  "uint32",
  "uint64",
  "float32",
  "float64",
];

describe.each(elementTypes)("%s", (type) => {
  const wide = type === "int64" || type === "uint64";
  const value = (number: number): number | bigint => (wide ? BigInt(number) : number);

  test("is allocated zeroed, in its own width", () => {
    const values = allocate(type, 3);
    expect([...values]).toEqual([value(0), value(0), value(0)]);
    expect(values.byteLength).toBe(3 * bytesPerElement(type));
    expect(bytesPerElement(type) * 8).toBe(Number(/\d+$/.exec(type)?.[0]));
  });

  test("is viewed in place", () => {
    const values = allocate(type, 4);
    values[2] = value(7) as never;
    const view = viewOf(type, values.buffer, 2 * bytesPerElement(type), 2);
    expect([...view]).toEqual([value(7), value(0)]);
    expect(view.buffer).toBe(values.buffer);
  });

  test("part of an array is copied to a position of another array", () => {
    const source = allocate(type, 4);
    for (let index = 0; index < 4; index += 1) {
      source[index] = value(index + 1) as never;
    }
    const target = allocate(type, 5);
    copyValues(target, 2, source, 1, 3);
    expect([...target]).toEqual([0, 0, 2, 3, 0].map(value));
  });

  test("is an element type and a column type, and is stored as itself", () => {
    expect(isElementType(type)).toBe(true);
    expect(scalarTypes).toContain(type);
    expect(layoutOf(type)).toEqual({ kind: "fixed", element: type, elementsPerValue: 1 });
    expect(bytesPerValue(type)).toBe(bytesPerElement(type));
  });
});

test("a copy beyond the end is refused, not cut", () => {
  expect(() => copyValues(allocate("int8", 2), 1, allocate("int8", 2), 0, 2)).toThrow(RangeError);
});

test("int64 values that no double can hold are copied unchanged", () => {
  const source = BigInt64Array.from([2n ** 63n - 1n, -(2n ** 63n)]);
  const target = allocate("int64", 2);
  copyValues(target, 0, source, 0, 2);
  expect([...target]).toEqual([9223372036854775807n, -9223372036854775808n]);
});

test.each([undefined, "", "string", "bool", "float16", "constructor", "toString", "__proto__"])(
  "%s is no element type",
  (name) => {
    expect(isElementType(name)).toBe(false);
  },
);

test.each([
  [1, "int16", 1],
  [4, "int16", 1],
  [5, "int32", 1],
  [9, "int32", 1],
  [10, "int64", 1],
  [18, "int64", 1],
  [19, "uint64", 2],
  [38, "uint64", 2],
] as const)(
  "a decimal of %i digits lies in the smallest integer that holds it",
  (precision, element, elementsPerValue) => {
    const type: ColumnType = { kind: "decimal", precision, scale: 0 };
    expect(layoutOf(type)).toEqual({ kind: "fixed", element, elementsPerValue });
    expect(bytesPerValue(type)).toBe(bytesPerElement(element) * elementsPerValue);
  },
);

const nested: ColumnType = {
  kind: "list",
  element: {
    kind: "struct",
    fields: [
      { name: "a", type: { kind: "decimal", precision: 10, scale: 2 } },
      { name: "b", type: { kind: "list", element: "utf8" } },
    ],
  },
};

test("a nested type is shown as Arrow would write it", () => {
  expect(showType(nested)).toBe("list<struct<a: decimal(10,2), b: list<utf8>>>");
  expect(showType("timestamp[us, UTC]")).toBe("timestamp[us, UTC]");
});

test("each type takes some room", () => {
  for (const type of [...scalarTypes, nested]) {
    expect(bytesPerValue(type)).toBeGreaterThan(0);
  }
  expect(bytesPerValue("uuid")).toBe(16);
  expect(bytesPerValue("interval")).toBe(16);
  expect(bytesPerValue(nested)).toBeGreaterThan(bytesPerValue("utf8"));
});
