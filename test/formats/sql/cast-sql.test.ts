import { describe, expect, test } from "vitest";
import type { ColumnType } from "#src/columns/types.js";
import { sqlTypeOf } from "#src/duckdb/sql.js";
import { exactJson, parseExactJson } from "#src/formats/sql/check-expression.js";
import { castSql, castTarget, columnSql } from "#src/formats/sql/slice-sql.js";
import type { CastRules, NumericTensorType } from "#src/models/binding/contract.js";
import { ref } from "../../support/batches.js";
import { connectToDuckDb } from "../../support/parquet.js";

const exact: CastRules = { cast: "exact", missing: "bad_row" };
const lossy: CastRules = { cast: "lossy", missing: "bad_row" };
const decimal = (precision: number, scale: number): ColumnType => ({ kind: "decimal", precision, scale });

/** One query for all values of a column: a filter or a vector in memory is met as it would be in a shard. */
async function castAll(
  from: ColumnType,
  dtype: NumericTensorType,
  values: readonly string[],
  rules: CastRules,
): Promise<unknown[]> {
  const connection = await connectToDuckDb();
  try {
    const rows = values.map((value, row) => `(${row}, (${value})::${sqlTypeOf(from)})`);
    await connection.run(`CREATE TEMP TABLE t AS SELECT * FROM (VALUES ${rows.join(", ")}) AS v(row, value)`);
    const sql = `SELECT ${castSql('"value"', from, dtype, rules)} AS v, typeof(v) FROM t ORDER BY row`;
    const found = (await connection.runAndReadAll(sql)).getRows();
    expect(new Set(found.map(([, type]) => type))).toEqual(new Set([castTarget(dtype)]));
    return found.map(([value]) => value);
  } finally {
    connection.closeSync();
  }
}

async function castOne(from: ColumnType, dtype: NumericTensorType, value: string, rules: CastRules): Promise<unknown> {
  return (await castAll(from, dtype, [value], rules))[0];
}

const integers = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"] as const;
const floats = ["float16", "float32", "float64"] as const;
type IntegerType = (typeof integers)[number];
type FloatType = (typeof floats)[number];

function limits(type: IntegerType): [bigint, bigint] {
  const bits = BigInt(Number(/\d+$/.exec(type)?.[0]));
  return type.startsWith("u") ? [0n, 2n ** bits - 1n] : [-(2n ** (bits - 1n)), 2n ** (bits - 1n) - 1n];
}

const floatLimits: Readonly<Record<FloatType, [bits: number, largest: bigint]>> = {
  float16: [11, 65504n],
  float32: [24, (2n ** 24n - 1n) * 2n ** 104n],
  float64: [53, (2n ** 53n - 1n) * 2n ** 971n],
};

/** A float holds an integer when, its trailing zeros gone, it has no more than so many bits. */
function holds(type: IntegerType | FloatType, value: bigint): boolean {
  if (type !== "float16" && type !== "float32" && type !== "float64") {
    const [low, high] = limits(type);
    return value >= low && value <= high;
  }
  const [bits, largest] = floatLimits[type];
  let odd = value < 0n ? -value : value;
  if (odd > largest) {
    return false;
  }
  while (odd > 0n && odd % 2n === 0n) {
    odd /= 2n;
  }
  return odd.toString(2).length <= bits;
}

/** Around every power of two, and both ends. */
function edges(type: IntegerType): bigint[] {
  const [low, high] = limits(type);
  const near = Array.from({ length: 65 }, (_, power) => 2n ** BigInt(power)).flatMap((power) =>
    [-2n, -1n, 0n, 1n, 2n, 3n, power / 2n, power / 2n + 1n].flatMap((offset) => [power + offset, -power - offset]),
  );
  const all = [0n, low, high, 70000n, 65503n, 65504n, 65519n, 65520n, 2049n, 2050n, 4097n, 4098n, 4100n, 300n, ...near];
  return [...new Set(all)].filter((value) => value >= low && value <= high);
}

describe.each(integers)("%s, exactly,", (from) => {
  test.each([...integers, ...floats])(
    "a cast into %s keeps integers that the type can hold, and all others do not fit",
    async (dtype) => {
      const values = edges(from);
      const cast = await castAll(from, dtype, values.map(String), exact);
      expect(cast.map((value) => (value === null ? null : BigInt(value as number)))).toEqual(
        values.map((value) => (holds(dtype, value) ? value : null)),
      );
    },
  );

  test("into bool: 0 and 1 fit", async () => {
    const values = edges(from);
    const expected = values.map((value) => (value === 0n ? false : value === 1n ? true : null));
    expect(await castAll(from, "bool", values.map(String), exact)).toEqual(expected);
    expect(await castAll(from, "bool", values.map(String), lossy)).toEqual(expected);
  });
});

const inf = Number.POSITIVE_INFINITY;

/** Value, as exact and as lossy; one where both are the same. null: does not fit. */
const rules: readonly [ColumnType, NumericTensorType, string, unknown, unknown?][] = [
  ["int32", "float32", "16777216", 16777216],
  ["int32", "float32", "16777217", null, 16777216],
  ["int32", "float32", "-16777217", null, -16777216],
  ["int32", "float32", "2147483647", null, 2147483648],
  ["int64", "float64", "9007199254740992", 9007199254740992],
  ["int64", "float64", "9007199254740993", null, 9007199254740992],
  ["uint64", "float64", "18446744073709551615", null, 18446744073709551616],
  ["uint64", "float32", "18446744073709551615", null, 18446744073709551616],
  ["int64", "float32", "-9223372036854775808", -9223372036854775808],
  ["int16", "uint8", "300", null, null],
  ["int16", "uint8", "-1", null, null],
  ["int16", "uint8", "255", 255],
  ["int64", "uint64", "-1", null, null],
  ["uint64", "int64", "9223372036854775808", null, null],
  ["float64", "int64", "1.5", null, 2n],
  ["float64", "int64", "-1.0", -1n],
  ["float64", "int64", "9223372036854775807", null, null],
  ["float64", "int64", "'nan'", null, null],
  ["float64", "int64", "'inf'", null, null],
  ["float64", "uint8", "-0.4", null, 0],
  ["float64", "uint8", "-0.6", null, null],
  ["float64", "uint8", "255.6", null, null],
  ["float64", "int32", "2147483647.4", null, 2147483647],
  ["float64", "int32", "2147483647.6", null, null],
  ["float64", "int32", "-2147483648.6", null, null],
  ["float64", "uint32", "4294967295.7", null, null],
  ["float64", "int64", "-9223372036854775808", -(2n ** 63n)],
  ["float64", "uint64", "18446744073709549568", 18446744073709549568n],
  ["float64", "uint64", "18446744073709551616", null, null],
  ["float32", "int32", "2147483648", null, null],
  ["float32", "int64", "9223372036854775808", null, null],
  ["float64", "uint8", "256", null, null],
  ["float32", "int8", "127.4", null, 127],
  ["float32", "int8", "127.6", null, null],
  ["float64", "float32", "0.1", Math.fround(0.1)],
  ["float64", "float32", "1e39", null, null],
  ["float64", "float32", "-1e39", null, null],
  ["float64", "float32", "1e-50", 0],
  ["float64", "float32", "16777217", 16777216],
  ["float64", "float32", "'nan'", Number.NaN],
  ["float64", "float32", "'inf'", inf],
  ["float64", "float32", "'-inf'", -inf],
  ["float32", "float32", "'nan'", Number.NaN],
  ["float32", "float64", "0.1", Math.fround(0.1)],
  ["float32", "float64", "'-inf'", -inf],
  ["int32", "float16", "2048", 2048],
  ["int32", "float16", "2049", null, 2049],
  ["int32", "float16", "2050", 2050],
  ["int32", "float16", "65504", 65504],
  ["int32", "float16", "65519", null, 65519],
  ["int32", "float16", "65520", null, null],
  ["int32", "float16", "70000", null, null],
  ["int32", "float16", "-70000", null, null],
  ["int64", "float16", "9223372036854775807", null, null],
  ["uint8", "float16", "255", 255],
  ["float64", "float16", "65519", 65519],
  ["float64", "float16", "65520", null, null],
  ["float64", "float16", "70000", null, null],
  ["float64", "float16", "1e300", null, null],
  ["float64", "float16", "65519.999999999", 65519.999999999],
  ["float64", "float16", "0.1", 0.1],
  ["float32", "float16", "'nan'", Number.NaN],
  ["float32", "float16", "'inf'", inf],
  ["float32", "float16", "'-inf'", -inf],
  ["bool", "bool", "true", true],
  ["bool", "float32", "true", 1],
  ["bool", "float16", "false", 0],
  ["bool", "int64", "true", 1n],
  ["bool", "uint8", "false", 0],
  ["float64", "bool", "1", true],
  ["float64", "bool", "'-0.0'", false],
  ["float64", "bool", "0.5", null, null],
  ["float64", "bool", "0.4", null, null],
  ["float64", "bool", "'nan'", null, null],
  ["float64", "bool", "1e300", null, null],
  [decimal(10, 2), "float32", "0.10", Math.fround(0.1)],
  [decimal(10, 2), "float64", "-12345678.91", -12345678.91],
  [decimal(18, 3), "float32", "16777217.5", 16777218],
  [decimal(10, 2), "int32", "7.00", 7],
  [decimal(10, 2), "int32", "7.01", null, 7],
  [decimal(10, 2), "int8", "128.00", null, null],
  [decimal(10, 2), "int8", "127.60", null, null],
  [decimal(10, 2), "uint8", "-0.40", null, 0],
  [decimal(10, 2), "float16", "65519.99", 65519.99],
  [decimal(10, 2), "float16", "65520.00", null, null],
  [decimal(3, 2), "bool", "1.00", true],
  [decimal(3, 2), "bool", "0.99", null, null],
  [decimal(38, 0), "float32", `'${"9".repeat(38)}'`, Math.fround(1e38)],
  [decimal(38, 0), "int64", `'${"9".repeat(38)}'`, null, null],
  // What these round to is more than their type can hold.
  [decimal(38, 37), "int64", "'9.6'", null, 10n],
  [decimal(38, 38), "uint8", "'0.6'", null, 1],
  [decimal(38, 38), "bool", "'0.6'", null, null],
  [decimal(38, 38), "bool", "'0'", false],
];

test.each(rules.map(([from, dtype, value, ...expected]) => ({ from, type: sqlTypeOf(from), dtype, value, expected })))(
  "of $type, $value, into $dtype is $expected (exact, lossy)",
  async ({ from, dtype, value, expected }) => {
    const [exactly, rounded = exactly] = expected;
    expect(await castOne(from, dtype, value, exact)).toEqual(exactly);
    expect(await castOne(from, dtype, value, lossy)).toEqual(expected.length === 1 ? exactly : rounded);
  },
);

const types: ColumnType[] = [...integers, "float32", "float64", "bool", decimal(10, 2), decimal(38, 10)];

test.each(types.map((type) => ({ type, name: sqlTypeOf(type) })))(
  "NULL of $name does not fit anywhere",
  async ({ type }) => {
    for (const dtype of [...integers, ...floats, "bool"] as const) {
      expect(await castOne(type, dtype, "NULL", exact)).toBeNull();
      expect(await castOne(type, dtype, "NULL", lossy)).toBeNull();
    }
  },
);

test.each(types.map((type) => ({ type, name: sqlTypeOf(type) })))(
  "NULL of $name is NaN in a float where missing values are NaN, and does not fit elsewhere",
  async ({ type }) => {
    const rule: CastRules = { cast: "exact", missing: "nan" };
    for (const dtype of floats) {
      expect(await castAll(type, dtype, ["NULL", "1"], rule)).toEqual([Number.NaN, 1]);
    }
    for (const dtype of [...integers, "bool"] as const) {
      expect(await castOne(type, dtype, "NULL", rule)).toBeNull();
    }
  },
);

test("a value that does not fit does not become NULL if missing values are NaN", async () => {
  const rule: CastRules = { cast: "exact", missing: "nan" };
  expect(await castOne("int32", "float32", "16777217", rule)).toBeNull();
  expect(await castOne("float64", "float32", "1e39", rule)).toBeNull();
  expect(await castOne("float64", "float16", "1e39", rule)).toBeNull();
});

describe("the SQL of a column", () => {
  const none = new Map<string, string | null>();

  test("the SQL of a column is its name", () => {
    expect(columnSql(ref("age"), none)).toBe('"age"');
    expect(columnSql({ name: 'a"b', path: ['a"b'], type: "int8" }, none)).toBe('"a""b"');
  });

  test("a path leads to a field, which cannot be confused with a table", () => {
    expect(columnSql(ref("user.home.city"), none)).toBe('("user")."home"."city"');
  });

  test("the SQL of a column of a folder name is the value as its type", () => {
    const values = new Map([
      ["dt", "2026-01-31"],
      ["q", "it's"],
      ["gone", null],
    ]);
    const folder = (name: string, type: ColumnType) => columnSql({ ...ref(name, type), partition: true }, values);
    expect(folder("dt", "date32")).toBe("CAST('2026-01-31' AS DATE)");
    expect(folder("q", "utf8")).toBe("CAST('it''s' AS VARCHAR)");
    expect(folder("gone", "int64")).toBe("CAST(NULL AS BIGINT)");
  });
});

test.each([
  '{"value":12345678901234567890123,"lower":18446744073709551615}',
  "[1e300,1.50,-0.0,0.1234567890123456789,5e-324]",
  String.raw`{"value":"{\"#number\":\"1\"} 12345678901234567890 \\"}`,
  '{"a":[1,-2,0.5,true,null,""]}',
])("JSON comes back with the numbers that it had: %s", (json) => {
  expect(exactJson(parseExactJson(json))).toBe(json);
});

test("numbers that float64 holds are parsed as numbers, and a text that is not JSON as undefined", () => {
  expect(parseExactJson('{"value":7,"text":"7"}')).toEqual({ value: 7, text: "7" });
  expect(parseExactJson("{")).toBe(undefined);
});
