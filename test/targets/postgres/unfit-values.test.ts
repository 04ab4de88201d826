import { describe, expect, test } from "vitest";
import type { BytesColumn, Column, ColumnType } from "#src/columns/types.js";
import type { UnfitValue } from "#src/targets/target.js";
import { fits, type PgType, pgTypeOf } from "#src/targets/postgres/table.js";
import { unfitRows } from "#src/targets/postgres/unfit-values.js";

function texts(values: readonly (string | null)[]): BytesColumn {
  const offsets = new Uint32Array(values.length + 1);
  const parts = values.map((value) => Buffer.from(value ?? "\u0000under a NULL\u0000"));
  for (const [index, part] of parts.entries()) {
    offsets[index + 1] = (offsets[index] ?? 0) + part.length;
  }
  const valid = values.includes(null) ? Uint8Array.from(values, (value) => (value === null ? 0 : 1)) : undefined;
  return { kind: "bytes", offsets, bytes: Buffer.concat([...parts, Buffer.from("\u0000beyond the last row")]), valid };
}

interface Target extends PgType {
  readonly notNull: boolean | "key";
}

const unfit = (type: ColumnType, column: Column, rowCount: number, target: Partial<Target> = {}): UnfitValue[] =>
  unfitRows({ columns: [{ name: "v", type, column }], rowCount }, [
    { type: { ...pgTypeOf(type), notNull: false, ...target } },
  ]);
const rowsOf = (...args: Parameters<typeof unfit>): number[] => unfit(...args).map(({ row }) => row);

const longs = (...values: bigint[]): Column => ({
  kind: "fixed",
  elementsPerValue: 1,
  data: BigInt64Array.from(values),
  valid: undefined,
});

describe("values that Postgres cannot hold", () => {
  test("text with \\u0000 does not fit, at any place, and each row is named once", () => {
    const column = texts(["a", "\u0000", "b\u0000c\u0000d", null, "", "x\u0000", "y"]);
    expect(unfit("utf8", column, 7)).toEqual([
      { row: 1, column: "v", found: String.raw`"\u0000", and text in Postgres cannot hold \u0000` },
      { row: 2, column: "v", found: String.raw`"b\u0000c\u0000d", and text in Postgres cannot hold \u0000` },
      { row: 5, column: "v", found: String.raw`"x\u0000", and text in Postgres cannot hold \u0000` },
    ]);
  });

  test("a timestamp beyond Postgres's calendar does not fit, nor does a time that is none", () => {
    expect(unfit("timestamp[us]", longs(0n, -(2n ** 63n)), 2)).toEqual([
      {
        row: 1,
        column: "v",
        found: "a timestamp -9223372036854775808 microseconds from 1970, out of the range of Postgres",
      },
    ]);
    expect(rowsOf("timestamp[ns]", longs(2n ** 63n - 1n, -(2n ** 63n)), 2)).toEqual([]);
    expect(rowsOf("time64[us]", longs(0n, 86_400_000_000n, 86_400_000_001n, -1n), 4)).toEqual([2, 3]);
    expect(rowsOf("time64[ns]", longs(86_400_000_000_000n, 86_400_000_000_001n, -1n), 3)).toEqual([1, 2]);
  });

  test("bytes with \\u0000 fit", () => {
    expect(rowsOf("binary", texts(["\u0000"]), 1)).toEqual([]);
  });

  test("text with \\u0000 does not fit inside lists and structs, and fits under a NULL", () => {
    const list: Column = {
      kind: "list",
      offsets: Uint32Array.of(0, 2, 2, 3, 4),
      child: texts(["a", "b\u0000", "c\u0000", "d\u0000"]),
      valid: Uint8Array.of(1, 1, 0, 1),
    };
    const listType: ColumnType = { kind: "list", element: "utf8" };
    expect(rowsOf(listType, list, 4)).toEqual([0, 3]);
    const struct: Column = { kind: "struct", rowCount: 4, children: [list], valid: Uint8Array.of(0, 1, 1, 1) };
    expect(rowsOf({ kind: "struct", fields: [{ name: "a", type: listType }] }, struct, 4)).toEqual([3]);
  });

  test("a list is no vector if it is empty, has another length, or an element that is no finite number", () => {
    const type: ColumnType = { kind: "list", element: "float32" };
    const data = Float32Array.of(1, 2, 3, 4, 5, 6, Number.NaN, 1, 1, Number.POSITIVE_INFINITY, 1, 9, 8, 1);
    const valid = Uint8Array.from(data, (_, index) => (index === 11 ? 0 : 1));
    const column: Column = {
      kind: "list",
      offsets: Uint32Array.of(0, 2, 2, 4, 5, 6, 8, 10, 12, 14),
      child: { kind: "fixed", elementsPerValue: 1, data, valid },
      valid: Uint8Array.of(1, 1, 1, 0, 1, 1, 1, 1, 1),
    };
    const vector = { name: "vector", array: false, dimensions: 2 } as const;
    expect(unfit(type, column, 9, vector).map(({ row, found }) => [row, found])).toEqual([
      [1, "a list of 0 numbers, where the table's vector has 2"],
      [4, "a list of 1 numbers, where the table's vector has 2"],
      [5, "a list with NaN, which a vector cannot hold"],
      [6, "a list with Infinity, which a vector cannot hold"],
      [7, "a list with NULL, which a vector cannot hold"],
    ]);
    expect(rowsOf(type, column, 9, { ...vector, dimensions: undefined })).toEqual([1, 5, 6, 7]);
    expect(fits(type, { ...pgTypeOf("bool"), ...vector })).toBe(true);
    expect(fits({ kind: "list", element: "float64" }, { ...pgTypeOf("bool"), ...vector })).toBe(false);
  });

  test("text longer than its column does not fit, counted in characters", () => {
    const column = texts(["äöü", "äöüx", null, "abc", "日本語が"]);
    expect(rowsOf("utf8", column, 5, { name: "varchar", maxLength: 3 })).toEqual([1, 4]);
  });

  test("a NULL does not fit a NOT NULL column", () => {
    const column: Column = {
      kind: "fixed",
      elementsPerValue: 1,
      data: Int32Array.of(1, 2, 3),
      valid: Uint8Array.of(1, 0, 1),
    };
    expect(rowsOf("int32", column, 3)).toEqual([]);
    expect(unfit("int32", column, 3, { notNull: true })).toMatchObject([
      { row: 1, found: "NULL, where the table's column is NOT NULL" },
    ]);
    expect(unfit("int32", column, 3, { notNull: "key" })).toMatchObject([
      { row: 1, found: "NULL, in a column of output.postgres.key" },
    ]);
  });

  test("a date or timestamp outside of Postgres's calendar does not fit", () => {
    const days = Int32Array.of(-2_440_588, -2_440_589, 2_145_042_905, 2_145_042_906, 0x7fff_ffff, -0x7fff_ffff);
    expect(rowsOf("date32", { kind: "fixed", elementsPerValue: 1, data: days, valid: undefined }, 6)).toEqual([1, 3]);
    const first = -211_813_488_000_000_000n + 946_684_800_000_000n;
    const moments = BigInt64Array.of(first, first - 1n, 2n ** 63n - 1n, 1n - 2n ** 63n, 2n ** 63n - 2n, 0n);
    expect(rowsOf("timestamp[us]", { kind: "fixed", elementsPerValue: 1, data: moments, valid: undefined }, 6)).toEqual(
      [1],
    );
  });
});
