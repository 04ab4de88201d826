import { describe, expect, test } from "vitest";
import { allocate, bytesPerElement, columnTypes, copyValues, isColumnType, viewOf } from "#src/batch/types.js";

describe.each(columnTypes)("%s", (type) => {
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

  test("is copied, part of it, to a place", () => {
    const source = allocate(type, 4);
    for (let index = 0; index < 4; index += 1) {
      source[index] = value(index + 1) as never;
    }
    const target = allocate(type, 5);
    copyValues(target, 2, source, 1, 3);
    expect([...target]).toEqual([0, 0, 2, 3, 0].map(value));
  });

  test("is a column type", () => {
    expect(isColumnType(type)).toBe(true);
  });
});

test("a copy beyond the end is refused, not cut", () => {
  expect(() => copyValues(allocate("int8", 2), 1, allocate("int8", 2), 0, 2)).toThrow(RangeError);
});

test("int64 keeps what no double holds", () => {
  const source = BigInt64Array.from([2n ** 63n - 1n, -(2n ** 63n)]);
  const target = allocate("int64", 2);
  copyValues(target, 0, source, 0, 2);
  expect([...target]).toEqual([9223372036854775807n, -9223372036854775808n]);
});

test.each([undefined, "", "string", "bool", "float16", "constructor", "toString", "__proto__"])(
  "%s is no column type",
  (name) => {
    expect(isColumnType(name)).toBe(false);
  },
);
