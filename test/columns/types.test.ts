import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { rowsWithin, takeRows } from "#src/columns/columns.js";
import {
  bytesPerValue,
  type Column,
  type ColumnType,
  layoutOfType,
  scalarTypes,
  showType,
} from "#src/columns/types.js";
import { allocate, bytesPerElement, copyValues, type ElementType, isElementType, viewOf } from "#src/columns/values.js";

const elementTypes = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split(
  " ",
) as readonly ElementType[];

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
    expect(layoutOfType(type)).toEqual({ kind: "fixed", element: type, elementsPerValue: 1 });
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
    expect(layoutOfType(type)).toEqual({ kind: "fixed", element, elementsPerValue });
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

const lists = {
  kind: "list",
  offsets: Uint32Array.of(0, 3, 5),
  child: { kind: "fixed", elementsPerValue: 1, data: Int32Array.of(1, 2, 3, 4, 5), valid: undefined },
  valid: undefined,
} as const;
const type = { kind: "list", element: "int32" } as const;

test("lists are taken in any order, NULLs among them, up to a limit of elements", () => {
  const taken = takeRows(type, lists, {
    indices: Uint32Array.of(1, 0, 1, 0),
    valid: Uint8Array.of(1, 1, 0, 1),
    limit: 11,
  });

  expect(taken).toMatchObject({ offsets: Uint32Array.of(0, 2, 5, 8, 11), valid: Uint8Array.of(1, 1, 0, 1) });
  expect(() => takeRows(type, lists, { indices: new Uint32Array(4), valid: undefined, limit: 11 })).toThrow(
    "12 elements of lists in 4 rows",
  );
});

function textsOf(lengths: readonly number[]): Column {
  const offsets = new Uint32Array(lengths.length + 1);
  lengths.forEach((length, row) => {
    offsets[row + 1] = (offsets[row] as number) + length;
  });
  return { kind: "bytes", offsets, bytes: new Uint8Array(offsets.at(-1) ?? 0), valid: undefined };
}

const fixed: Column = { kind: "fixed", elementsPerValue: 2, data: new BigUint64Array(6), valid: undefined };
const texts = textsOf([5, 0, 7]);
const list: Column = { kind: "list", offsets: Uint32Array.of(0, 2, 2, 3), child: texts, valid: undefined };
const struct: Column = { kind: "struct", rowCount: 3, children: [fixed, texts], valid: undefined };

test.each([
  ["numbers", fixed, 32],
  ["texts", texts, 5 + 2 * 4],
  ["lists of texts", list, 5 + 2 * 4 + 2 * 4],
  ["structs", struct, 32 + 5 + 2 * 4],
])("two rows of %s fit into exactly their bytes", (_, column, bytes) => {
  expect(rowsWithin([column], { from: 0, to: 3, limit: bytes })).toBe(2);
  expect(rowsWithin([column], { from: 0, to: 3, limit: bytes - 1 })).toBe(1);
});

test("rows within a limit are as many as fit, and one at least", () => {
  const shape = fc.record({
    lengths: fc.array(fc.nat(100), { minLength: 1, maxLength: 40 }),
    from: fc.nat(39),
    limit: fc.integer({ min: 0, max: 1000 }),
  });
  fc.assert(
    fc.property(shape, ({ lengths, from: start, limit }) => {
      const columns = [textsOf(lengths), textsOf(lengths.toReversed())];
      const from = Math.min(start, lengths.length - 1);
      const to = lengths.length;
      const both = lengths.map((length, row) => length + (lengths.at(-1 - row) as number) + 2 * 4);
      const bytes = (rows: number): number => both.slice(from, from + rows).reduce((sum, one) => sum + one, 0);
      const rows = rowsWithin(columns, { from, to, limit });
      expect(rows).toBeGreaterThanOrEqual(1);
      expect(rows === 1 || bytes(rows) <= limit).toBe(true);
      expect(from + rows === to || bytes(rows + 1) > limit).toBe(true);
    }),
  );
});
