import type { ColumnType } from "#src/columns/types.js";

/** A type with values of it as SQL, those at its edges among them; each is tried with and without NULLs. */
export interface TypeCase {
  readonly name: string;
  readonly type: ColumnType;
  /** As DuckDB writes it. */
  readonly sql: string;
  readonly values: readonly string[];
  /** Those that Parquet has; default: all. */
  readonly inParquet?: readonly string[];
}

const of = (name: string, type: ColumnType, sql: string, ...values: string[]): TypeCase => ({
  name,
  type,
  sql,
  values: values.map((value) => `(${value})::${sql}`),
});

const decimal = (precision: number, scale: number, ...values: string[]): TypeCase =>
  of(
    `decimal(${precision},${scale})`,
    { kind: "decimal", precision, scale },
    `DECIMAL(${precision},${scale})`,
    ...values,
  );

const nines = (digits: number, scale: number): string => `'${"9".repeat(digits - scale)}.${"9".repeat(scale)}'`;

const scalarCases: readonly TypeCase[] = [
  of("int8", "int8", "TINYINT", "-128", "127", "0", "-1"),
  of("int16", "int16", "SMALLINT", "-32768", "32767", "0", "-1"),
  of("int32", "int32", "INTEGER", "-2147483648", "2147483647", "0", "-1"),
  of("int64", "int64", "BIGINT", "-9223372036854775808", "9223372036854775807", "0", "9007199254740993"),
  of("uint8", "uint8", "UTINYINT", "0", "255", "128"),
  of("uint16", "uint16", "USMALLINT", "0", "65535", "32768"),
  of("uint32", "uint32", "UINTEGER", "0", "4294967295", "2147483648"),
  of("uint64", "uint64", "UBIGINT", "0", "18446744073709551615", "9223372036854775808"),
  of("float32", "float32", "FLOAT", "'-0.0'", "0", "3.4028234663852886e38", "1e-45", "'nan'", "'-inf'", "'inf'"),
  of("float64", "float64", "DOUBLE", "'-0.0'", "0", "1.7976931348623157e308", "5e-324", "'nan'", "'-inf'", "'inf'"),
  of("bool", "bool", "BOOLEAN", "true", "false", "true"),
  decimal(4, 2, "-99.99", "99.99", "0", "-0.01"),
  decimal(9, 0, "-999999999", "999999999", "0"),
  decimal(9, 9, "-0.999999999", "0.999999999", "0"),
  decimal(18, 5, "-1234567890123.45678", nines(18, 5), "0"),
  decimal(19, 2, nines(19, 2), `'-${"9".repeat(17)}.99'`, "0", "-0.01", "1"),
  decimal(38, 10, nines(38, 10), `'-${"9".repeat(28)}.${"9".repeat(10)}'`, "0", "-1", "18446744073709551616"),
  of("date", "date32", "DATE", "'1970-01-01'", "'0001-01-01'", "'9999-12-31'", "'5877642-06-25 (BC)'", "'infinity'"),
  of("time", "time64[us]", "TIME", "'00:00:00'", "'23:59:59.999999'", "'12:34:56.000001'"),
  of("time in ns", "time64[ns]", "TIME_NS", "'00:00:00'", "'23:59:59.999999999'", "'12:34:56.000000001'"),
  of(
    "time with zone",
    "time64[us, zone]",
    "TIME WITH TIME ZONE",
    "'00:00:00+00'",
    "'23:59:59.999999-15:59:59'",
    "'12:00:00+05:30'",
  ),
  of(
    "timestamp",
    "timestamp[us]",
    "TIMESTAMP",
    "'1970-01-01'",
    "'1969-12-31 23:59:59.999999'",
    "'9999-12-31 23:59:59.999999'",
    "'-infinity'",
  ),
  of(
    "timestamp in ns",
    "timestamp[ns]",
    "TIMESTAMP_NS",
    "'1970-01-01'",
    "'2262-04-11 23:47:16.854775806'",
    "'1677-09-22 00:00:00.000000001'",
  ),
  of(
    "timestamp in UTC",
    "timestamp[us, UTC]",
    "TIMESTAMP WITH TIME ZONE",
    "'1970-01-01 00:00:00+00'",
    "'2026-11-21 12:34:56.789012+05:30'",
    "'0001-01-01 00:00:00+00'",
  ),
  of("uuid", "uuid", "UUID", `'${"0".repeat(32)}'`, `'${"f".repeat(32)}'`, "'80000000-0000-0000-7fff-ffffffffffff'"),
  {
    ...of("interval", "interval", "INTERVAL", "'0 days'", "'14 months -3 days 4 hours'", "'-1 month'", "'30 days'"),
    inParquet: ["0 days", "14 months 3 days 4 hours", "1 month", "30 days"].map((text) => `INTERVAL '${text}'`),
  },
  of(
    "text",
    "utf8",
    "VARCHAR",
    "''",
    "'exactly 12 b'",
    "'exactly 13 by'",
    "repeat('x', 10000)",
    "'ä'",
    "'日本語テキスト、長い'",
    "'👩‍👩‍👧‍👦'",
    "'a' || chr(0) || 'b'",
  ),
  of(
    "bytes",
    "binary",
    "BLOB",
    "''::BLOB",
    "'\\x00\\xFF\\x80'::BLOB",
    "repeat('\\xFE', 12)::BLOB",
    "repeat('\\x00', 13)::BLOB",
    "encode(repeat('y', 10000))",
  ),
];

const list = (element: ColumnType): ColumnType => ({ kind: "list", element });
const struct = (fields: Readonly<Record<string, ColumnType>>): ColumnType => ({
  kind: "struct",
  fields: Object.entries(fields).map(([name, type]) => ({ name, type })),
});

const nestedCases: readonly TypeCase[] = [
  of("list of floats", list("float32"), "FLOAT[]", "[0]", "['-0.0']", "[1, '-0.0', NULL, 0]", "[]"),
  of("list of intervals", list("interval"), "INTERVAL[]", "[INTERVAL '1 month']", "[INTERVAL '30 days', NULL]", "[]"),
  of(
    "struct with doubles in lists",
    struct({ a: list(struct({ b: "float64" })) }),
    'STRUCT("a" STRUCT("b" DOUBLE)[])',
    "{'a': [{'b': 0}]}",
    "{'a': [NULL, {'b': '-0.0'}]}",
  ),
  of("list", list("int32"), "INTEGER[]", "[]", "[1]", "[NULL, 2, NULL]", "range(100)", "[-2147483648]"),
  of("list of bool", list("bool"), "BOOLEAN[]", "[]", "[true, NULL, false]", "[NULL]"),
  of(
    "list of wide decimals",
    list({ kind: "decimal", precision: 38, scale: 2 }),
    "DECIMAL(38,2)[]",
    "[-1.5, NULL]",
    "[]",
  ),
  of("list of texts", list("utf8"), "VARCHAR[]", "[]", "['', NULL, repeat('z', 200), 'ü']", "['exactly 13 by']"),
  of(
    "list of lists",
    list(list("int64")),
    "BIGINT[][]",
    "[]",
    "[[]]",
    "[[1, NULL], NULL, [], [2, 3, 4]]",
    "[range(30), [9]]",
  ),
  of(
    "list of lists of texts",
    list(list("utf8")),
    "VARCHAR[][]",
    "[['a', NULL], NULL, []]",
    "[[repeat('long', 9)], ['b'], ['c', 'd']]",
    "[]",
  ),
  of(
    "struct",
    struct({ a: "int16", b: "utf8", c: "float64" }),
    'STRUCT("a" SMALLINT, "b" VARCHAR, "c" DOUBLE)',
    "{'a': 1, 'b': 'x', 'c': 0.5}",
    "{'a': NULL, 'b': repeat('y', 50), 'c': NULL}",
    "{'a': NULL, 'b': NULL, 'c': NULL}",
  ),
  of(
    "struct with fields named like numbers, out of order",
    {
      kind: "struct",
      fields: [
        { name: "b", type: "utf8" },
        { name: "2", type: "int32" },
        { name: "1", type: "float64" },
      ],
    },
    'STRUCT("b" VARCHAR, "2" INTEGER, "1" DOUBLE)',
    "{'b': 'x', '2': 2, '1': 0.1}",
    "{'b': NULL, '2': NULL, '1': 0.25}",
  ),
  of(
    "struct with quotes and blanks in its names",
    struct({ 'a "b" c': "int32", "it's": "utf8", 日: "bool" }),
    'STRUCT("a ""b"" c" INTEGER, "it\'s" VARCHAR, "日" BOOLEAN)',
    `{'a "b" c': 1, 'it''s': 'x', '日': true}`,
  ),
  of(
    "structs in lists",
    list(struct({ a: "int32", b: "utf8" })),
    'STRUCT("a" INTEGER, "b" VARCHAR)[]',
    "[]",
    "[{'a': 1, 'b': 'short'}, NULL, {'a': NULL, 'b': repeat('w', 40)}]",
    "[{'a': 5, 'b': NULL}]",
  ),
  of(
    "lists in structs",
    struct({ a: list("utf8"), b: struct({ c: list(list("int32")), d: "date32" }) }),
    'STRUCT("a" VARCHAR[], "b" STRUCT("c" INTEGER[][], "d" DATE))',
    "{'a': ['x', NULL, repeat('v', 30)], 'b': {'c': [[1], NULL, []], 'd': '2026-01-31'}}",
    "{'a': NULL, 'b': NULL}",
    "{'a': [], 'b': {'c': NULL, 'd': NULL}}",
    "{'a': [], 'b': {'c': [[1, 2], [3]], 'd': NULL}}",
  ),
];

export const typeCases: readonly TypeCase[] = [...scalarCases, ...nestedCases];
