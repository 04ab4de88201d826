import * as fc from "fast-check";
import { createColumnBuilder } from "#src/columns/columns.js";
import type { Column, ColumnType, FixedColumn } from "#src/columns/types.js";
import { type DuckDBConnection, openDuckDb } from "#src/duckdb/instance.js";
import { readColumn } from "#src/duckdb/vectors.js";
import { copyStream, encodeRows } from "#src/targets/postgres/copy-binary.js";
import { type PgType, pgTypeOf, pgTypeSql } from "#src/targets/postgres/table.js";
import { unfitRows } from "#src/targets/postgres/unfit-values.js";
import { afterAll, expect, test } from "vitest";
import { type TypeCase, typeCases } from "../../support/column-types.js";
import { copyColumns } from "../../support/copy.js";
import type { Database } from "../../support/pg-database.js";
import { usePostgres } from "../../support/postgres.js";

const postgres = usePostgres();
/** More than one block, with a rest. */
const rowCount = 5000;
let database: Database | undefined;
afterAll(() => database?.[Symbol.asyncDispose]());

const duckdb = await openDuckDb({ threads: 1, allowed: {}, settings: { TimeZone: "'UTC'" } });
afterAll(() => {
  duckdb[Symbol.dispose]();
});

async function withDuckDb<T>(work: (connection: DuckDBConnection) => Promise<T>): Promise<T> {
  const connection = await duckdb.connect();
  try {
    return await work(connection);
  } finally {
    connection.closeSync();
  }
}

/** The rows of `SELECT row, v, text …`: two columns as the decoder gives them, and a text that another program made. */
async function readRows(
  sql: string,
  type: ColumnType,
): Promise<{ rows: Column; values: Column; texts: (string | null)[] }> {
  return await withDuckDb(async (connection) => {
    const builders = [createColumnBuilder("int64", 10), createColumnBuilder(type, 10)] as const;
    const texts: (string | null)[] = [];
    const result = await connection.stream(sql);
    for (
      let chunk = await result.fetchChunk();
      chunk !== null && chunk.rowCount > 0;
      chunk = await result.fetchChunk()
    ) {
      builders[0].append(readColumn(chunk, 0, "int64"), 0, chunk.rowCount);
      builders[1].append(readColumn(chunk, 1, type), 0, chunk.rowCount);
      texts.push(...chunk.getColumnValues(2).map((text) => (text === null ? null : String(text))));
    }
    return { rows: builders[0].finish(), values: builders[1].finish(), texts };
  });
}

/** Of values that an array's text needs no quotes for. */
const isPlainList = (type: ColumnType): boolean =>
  typeof type === "object" && type.kind === "list" && typeof type.element === "string" && type.element !== "utf8";
const isNested = (type: ColumnType): boolean =>
  typeof type === "object" && type.kind !== "decimal" && !isPlainList(type);

/** What DuckDB writes for a value, as Postgres reads it. */
function textSql(type: ColumnType): string {
  if (type === "binary") {
    return "'\\x' || hex(v)";
  }
  if (type === "time64[ns]" || type === "timestamp[ns]") {
    return "regexp_replace(v::VARCHAR, '(\\.\\d{6})\\d+', '\\1')"; // Postgres keeps microseconds
  }
  if (type === "date32") {
    return "replace(v::VARCHAR, '(BC)', 'BC')";
  }
  if (isPlainList(type)) {
    return "translate(v::VARCHAR, '[]', '{}')";
  }
  return isNested(type) ? "to_json(v)::VARCHAR" : "v::VARCHAR";
}

function tableSql({ values, sql, type }: TypeCase, nulls: string): string {
  const cases = values.map((value, index) => `WHEN row % ${values.length} = ${index} THEN ${value}`);
  return `SELECT row, v, ${textSql(type)} FROM (SELECT row, (CASE WHEN ${nulls} THEN NULL ${cases.join(" ")} END)::${sql} AS v
    FROM range(${rowCount}) AS t(row)) ORDER BY row`;
}

async function takes(text: string, type: PgType): Promise<boolean> {
  return await (database as Database).query(`SELECT $1::${pgTypeSql(type)}`, [text]).then(
    () => true,
    () => false,
  );
}

async function fittingValues(given: TypeCase): Promise<string[]> {
  const target = { ...pgTypeOf(given.type), notNull: false };
  const { values, texts } = await readRows(tableSql(given, "false"), given.type);
  const output = { columns: [{ name: "v", type: given.type, column: values }], rowCount };
  const unfit = new Set(unfitRows(output, [{ type: target }]).map(({ row }) => row));
  const asked = await Promise.all(
    given.values.map(
      async (_value, index) =>
        await takes(texts[index] ?? "", isNested(given.type) ? pgTypeOf({ kind: "struct", fields: [] }) : target),
    ),
  );
  // What is told to be unfit is what Postgres refuses.
  expect(given.values.map((_value, index) => !unfit.has(index))).toEqual(asked);
  return given.values.filter((_value, index) => asked[index]);
}

/** Rows where what Postgres holds is not what it makes of the text. */
async function differing(given: TypeCase, nulls: string): Promise<unknown[]> {
  const target = pgTypeOf(given.type);
  const { rows, values, texts } = await readRows(tableSql(given, nulls), given.type);
  const db = database as Database;
  await db.query(
    `DROP TABLE IF EXISTS copied, told; CREATE TABLE copied (row int8, v ${pgTypeSql(target)}); CREATE TABLE told (row int8, v text)`,
  );
  const types = [pgTypeOf("int64"), target];
  const columns = [
    { type: "int64" as const, column: rows },
    { type: given.type, column: values },
  ];
  expect(await copyColumns(db.url, "copied", { columns, types, rowCount })).toBe(rowCount);
  await db.query("INSERT INTO told SELECT i - 1, t FROM unnest($1::text[]) WITH ORDINALITY AS u(t, i)", [texts]);
  // 0 and 0.0 are the same JSON.
  const [actual, expected] = isNested(given.type)
    ? ["to_jsonb(copied.v)", "told.v::jsonb"]
    : ["copied.v::text", `told.v::${pgTypeSql(target)}::text`];
  return await db.query(
    `SELECT row, ${actual} AS actual, ${expected} AS expected FROM copied FULL JOIN told USING (row)
     WHERE ${actual} IS DISTINCT FROM ${expected} LIMIT 5`,
  );
}

const scalar = (name: PgType["name"]): PgType => ({ name, array: false, maxLength: undefined, decimal: undefined });
const fixed = (data: FixedColumn["data"], elementsPerValue: 1 | 2 = 1): FixedColumn => ({
  kind: "fixed",
  elementsPerValue,
  data,
  valid: undefined,
});
const text = (...values: string[]): Column => {
  const bytes = Buffer.from(values.join(""));
  const offsets = Uint32Array.of(
    0,
    ...values.map((_, index) => Buffer.byteLength(values.slice(0, index + 1).join(""))),
  );
  return { kind: "bytes", offsets, bytes, valid: undefined };
};

postgres.describe("rows in COPY's binary format", () => {
  test.each(typeCases)("$name arrives in Postgres as Postgres reads its text", async (given) => {
    database ??= await postgres.server().createDatabase();
    const fitting = { ...given, values: await fittingValues(given) };
    expect(fitting.values.length).toBeGreaterThan(0);
    for (const nulls of ["false", "row % 7 = 3 OR row BETWEEN 640 AND 705"]) {
      expect(await differing(fitting, nulls)).toEqual([]);
    }
  });

  test.each(typeCases.filter(({ type }) => !isNested(type) && !isPlainList(type) && type !== "interval"))(
    "$name in a struct is the JSON that Postgres makes of it",
    async ({ type, ...given }) => {
      database ??= await postgres.server().createDatabase();
      const values = (await fittingValues({ ...given, type })).filter((value) => !/BC|'0001/.test(value));
      const { rows, values: flat } = await readRows(tableSql({ ...given, type, values }, "row % 3 = 1"), type);
      const struct: ColumnType = { kind: "struct", fields: [{ name: "b", type }] };
      const wrapped: Column = { kind: "struct", rowCount, children: [flat], valid: undefined };
      await database.query(
        `DROP TABLE IF EXISTS copied; CREATE TABLE copied (row int8, v ${pgTypeSql(pgTypeOf(type))}, j jsonb); SET timezone = 'UTC'`,
      );
      const columns = [
        { type: "int64" as const, column: rows },
        { type, column: flat },
        { type: struct, column: wrapped },
      ];
      const types = columns.map((column) => pgTypeOf(column.type));
      await copyColumns(database.url, "copied", { columns, types, rowCount });
      expect(
        await database.query(
          "SELECT row, j->'b' AS actual, to_jsonb(v) AS expected FROM copied WHERE j->'b' IS DISTINCT FROM coalesce(to_jsonb(v), 'null') LIMIT 5",
        ),
      ).toEqual([]);
    },
  );

  test("the first and the last nanosecond arrive in Postgres as microseconds, not as infinity", async () => {
    database ??= await postgres.server().createDatabase();
    await database.query("DROP TABLE IF EXISTS copied; CREATE TABLE copied (v timestamp)");
    const values = BigInt64Array.of(2n ** 63n - 1n, -(2n ** 63n) + 1n, -(2n ** 63n), -1n);
    const columns = [{ type: "timestamp[ns]" as const, column: fixed(values) }];

    await copyColumns(database.url, "copied", { columns, types: [pgTypeOf("timestamp[ns]")], rowCount: 4 });

    expect((await database.query("SELECT v::text FROM copied")).map((row) => Object.values(row as object)[0])).toEqual([
      "2262-04-11 23:47:16.854775",
      "1677-09-21 00:12:43.145224",
      "1677-09-21 00:12:43.145224",
      "1969-12-31 23:59:59.999999",
    ]);
  });

  test("numbers of any size and scale arrive in Postgres as numeric", async () => {
    database ??= await postgres.server().createDatabase();
    const db = database;
    await db.query("CREATE TABLE numbers (v numeric)");
    const decimal = fc
      .integer({ min: 1, max: 38 })
      .chain((precision) => fc.tuple(fc.constant(precision), fc.integer({ min: 0, max: precision })))
      .chain(([precision, scale]) => {
        const limit = 10n ** BigInt(precision) - 1n;
        const values = fc.array(
          fc.oneof(fc.bigInt({ min: -limit, max: limit }), fc.bigInt({ min: -9999n, max: 9999n })),
          { minLength: 1, maxLength: 50 },
        );
        return fc.tuple(fc.constant({ precision, scale, limit }), values);
      });
    await fc.assert(
      fc.asyncProperty(decimal, async ([{ precision, scale, limit }, values]) => {
        const inside = values.filter((value) => value <= limit && value >= -limit);
        const type: ColumnType = { kind: "decimal", precision, scale };
        await db.query("TRUNCATE numbers");
        await copyColumns(db.url, "numbers", {
          columns: [{ type, column: decimals(inside, precision) }],
          types: [{ ...pgTypeOf(type), decimal: undefined }],
          rowCount: inside.length,
        });
        const found = await db.query("SELECT v::text FROM numbers");
        const expected = await db.query(
          `SELECT (u * 1e-${scale}::numeric)::numeric(${precision},${scale})::text AS v FROM unnest($1::numeric[]) AS t(u)`,
          [inside.map(String)],
        );
        expect(found).toEqual(expected);
      }),
      { numRuns: 60 },
    );
  });

  test("wider types of the table take narrower values", async () => {
    database ??= await postgres.server().createDatabase();
    await database.query("CREATE TABLE wide (a int8, b int8, c numeric, d float8, e varchar(3), f jsonb, g int4)");
    await copyColumns(database.url, "wide", {
      columns: [
        { type: "int32", column: fixed(Int32Array.of(-2147483648, 2147483647)) },
        { type: "uint32", column: fixed(Uint32Array.of(4294967295, 1)) },
        { type: "int64", column: fixed(BigInt64Array.of(-(2n ** 63n), 10000n)) },
        { type: "float32", column: fixed(Float32Array.of(0.5, -1e38)) },
        { type: "utf8", column: text("äöü", "") },
        { type: "utf8", column: text('{"a": 1}', "null") },
        { type: "uint16", column: fixed(Uint16Array.of(65535, 0)) },
      ],
      types: [
        scalar("int8"),
        scalar("int8"),
        scalar("numeric"),
        scalar("float8"),
        scalar("varchar"),
        scalar("jsonb"),
        scalar("int4"),
      ],
      rowCount: 2,
    });
    expect(await database.query("SELECT a::text, b::text, c::text, d::text, e, f, g FROM wide")).toEqual([
      { a: "-2147483648", b: "4294967295", c: "-9223372036854775808", d: "0.5", e: "äöü", f: { a: 1 }, g: 65535 },
      { a: "2147483647", b: "1", c: "10000", d: String(Math.fround(-1e38)), e: "", f: null, g: 0 },
    ]);
  });

  test("chunks of COPY stay small where rows are long", () => {
    const size = 1024 * 1024;
    const bytes = new Uint8Array(10 * size);
    const offsets = Uint32Array.from({ length: 11 }, (_, row) => row * size);
    const column: Column = { kind: "bytes", offsets, bytes, valid: undefined };
    const chunks = [...copyStream(encodeRows([{ type: "binary", column }], [pgTypeOf("binary")], 10))];
    expect(Math.max(...chunks.map(({ length }) => length))).toBeLessThan(4.1 * size);
  });
});

function decimals(values: readonly bigint[], precision: number): FixedColumn {
  if (precision > 18) {
    const words = values.flatMap((value) => [BigInt.asUintN(64, value), BigInt.asUintN(64, value >> 64n)]);
    return fixed(BigUint64Array.from(words), 2);
  }
  return precision > 9
    ? fixed(BigInt64Array.from(values))
    : precision > 4
      ? fixed(Int32Array.from(values, Number))
      : fixed(Int16Array.from(values, Number));
}
