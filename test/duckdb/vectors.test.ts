import { DuckDBDataChunk } from "@duckdb/node-api";
import { afterAll, describe, expect, test } from "vitest";
import { createColumnBuilder } from "#src/columns/columns.js";
import { type Column, type ColumnType, scalarTypes } from "#src/columns/types.js";
import { type DuckDBConnection, openDuckDb } from "#src/duckdb/instance.js";
import { columnTypeOf, duckDbTypeOf, readColumn, writeColumn } from "#src/duckdb/vectors.js";
import { sqlTypeOf } from "#src/duckdb/sql.js";
import { type TypeCase, typeCases } from "../support/column-types.js";
import { torture } from "../support/torture.js";

/** More than two vectors of DuckDB, and no multiple of one. */
const rowCount = 4200;

function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const duckdb = await openDuckDb({ threads: 1, allowed: {}, settings: { TimeZone: "'UTC'" } });
afterAll(() => {
  duckdb[Symbol.dispose]();
});

/** Tables are temporary: they go with their connection. */
async function withConnection<T>(work: (connection: DuckDBConnection) => Promise<T>): Promise<T> {
  const connection = await duckdb.connect();
  try {
    return await work(connection);
  } finally {
    connection.closeSync();
  }
}

async function readSpans(
  connection: DuckDBConnection,
  sql: string,
  { type, spanRows }: { type: ColumnType; spanRows: number },
): Promise<[Column, Column][]> {
  const next = numbers(spanRows);
  const newSpan = () => [createColumnBuilder("int64", 10), createColumnBuilder(type, 10)] as const;
  const spans = [newSpan()];
  const result = await connection.stream(sql);
  for (let chunk = await result.fetchChunk(); chunk !== null && chunk.rowCount > 0; chunk = await result.fetchChunk()) {
    const columns = [readColumn(chunk, 0, "int64"), readColumn(chunk, 1, type)];
    for (let from = 0; from < chunk.rowCount; ) {
      let open = spans.at(-1) ?? newSpan();
      if (open[0].rowCount === spanRows) {
        open = newSpan();
        spans.push(open);
      }
      const room = Math.min(chunk.rowCount - from, spanRows - open[0].rowCount);
      const to = from + 1 + next(room);
      open.forEach((builder, index) => {
        builder.append(columns[index] as Column, from, to);
      });
      from = to;
    }
  }
  return spans.map(([rows, values]) => [rows.finish(), values.finish()]);
}

const lengthOf = (column: Column): number => (column.kind === "fixed" ? column.data.length : 0);

async function writeSpans(connection: DuckDBConnection, type: ColumnType, spans: [Column, Column][]): Promise<void> {
  await connection.run(`CREATE TEMP TABLE copied (row BIGINT, v ${sqlTypeOf(type)})`);
  const appender = await connection.createAppender("copied", "main", "temp");
  const chunk = DuckDBDataChunk.create([duckDbTypeOf("int64"), duckDbTypeOf(type)]);
  const next = numbers(rowCount);
  for (const columns of spans) {
    const length = lengthOf(columns[0]);
    for (let from = 0; from < length; ) {
      const to = Math.min(length, from + 1 + next(2048));
      chunk.reset();
      columns.forEach((column, index) => {
        writeColumn(chunk, index, column, { from, to });
      });
      chunk.rowCount = to - from;
      appender.appendDataChunk(chunk);
      from = to;
    }
  }
  appender.closeSync();
}

/** What tells the copy from the original, row by row, also as text (which knows -0 and 30 days). Rows have numbers. */
async function differences(connection: DuckDBConnection, original: string): Promise<unknown[]> {
  const result = await connection.runAndReadAll(`
    WITH original AS (${original})
    SELECT 'rows', (SELECT count(*) FROM copied), (SELECT count(*) FROM original)
      WHERE (SELECT count(*) FROM copied) <> (SELECT count(*) FROM original)
    UNION ALL SELECT 'missing, added, changed or read otherwise', count(*), min(coalesce(o.row, c.row))
      FROM copied AS c FULL JOIN original AS o ON c.row = o.row
      WHERE c.row IS NULL OR o.row IS NULL OR c.v IS DISTINCT FROM o.v OR c.v::VARCHAR IS DISTINCT FROM o.v::VARCHAR
      HAVING count(*) > 0`);
  return result.getRows();
}

/** Values in turn, so that each comes with each position in a validity word; `null`: rows that are NULL instead. */
function tableSql({ values, sql }: TypeCase, nulls: string): string {
  const cases = values.map((value, index) => `WHEN row % ${values.length} = ${index} THEN ${value}`);
  return `CREATE TEMP TABLE original AS
    SELECT row, (CASE WHEN ${nulls} THEN NULL ${cases.join(" ")} END)::${sql} AS v FROM range(${rowCount}) AS t(row)`;
}

async function roundTrip(given: TypeCase, nulls: string, select: string, spanRows: number): Promise<unknown[]> {
  return await withConnection(async (connection) => {
    await connection.run(tableSql(given, nulls));
    const spans = await readSpans(connection, select, { type: given.type, spanRows });
    await writeSpans(connection, given.type, spans);
    return await differences(connection, select);
  });
}

describe.each(typeCases.map((given, index) => ({ ...given, given, index })))(
  "a DuckDB column of $name",
  ({ given, index }) => {
    const few = <T>(cases: readonly T[]): T[] => cases.filter((_, at) => torture || at === index % cases.length);

    test("a column type converts to the DuckDB type of its SQL name and back", async () => {
      await withConnection(async (connection) => {
        await connection.run(tableSql(given, "false"));
        const result = await connection.run("SELECT v, typeof(v) AS t FROM original LIMIT 1");
        expect(columnTypeOf(result.columnType(0))).toEqual(given.type);
        expect(sqlTypeOf(given.type)).toBe(given.sql);
        expect(String(duckDbTypeOf(given.type))).toBe(String(result.columnType(0)));
      });
    });

    test.each(
      few([
        ["without a NULL", "false"],
        ["with NULLs here and there", "row % 7 = 3 OR row BETWEEN 640 AND 705"],
        ["with NULLs in the first vector only", "row % 2 = 0 AND row < 2000"],
        ["with a single NULL, the last", `row = ${rowCount - 1}`],
        ["NULL throughout", "true"],
      ]),
    )("values survive writing and reading a DuckDB column, %s", async (_what, nulls) => {
      expect(await roundTrip(given, nulls, "SELECT row, v FROM original", 3001)).toEqual([]);
    });

    test.each(
      few([
        ["rows that a filter left", "SELECT row, v FROM original WHERE row % 3 <> 1 AND hash(row) % 5 <> 0"],
        ["rows in another order", "SELECT row, v FROM original ORDER BY hash(row)"],
        ["one value for all rows", "SELECT row, (SELECT v FROM original WHERE row = 1) AS v FROM original"],
        [
          "rows that a join repeats",
          "SELECT a.row, b.v FROM original AS a JOIN original AS b ON b.row = a.row % 50 WHERE b.row % 4 <> 0",
        ],
        ["rows before a limit", "SELECT row, v FROM original WHERE row > 100 LIMIT 3333"],
      ]),
    )("values survive writing and reading a DuckDB column: %s", async (_what, select) => {
      expect(await roundTrip(given, "row % 7 = 3", select, 700)).toEqual([]);
    });

    // Vectors that hold a value once: rows of a list then share the same elements.
    test("values survive writing and reading a DuckDB column: a literal", async () => {
      for (const value of [...few(given.values), `NULL::${given.sql}`]) {
        const select = `SELECT row, ${value} AS v FROM original WHERE row < 2500`;
        expect(await roundTrip(given, "false", select, 700)).toEqual([]);
      }
    });
  },
);

/** A column around it, made by the query: its parts lie in vectors as expressions leave them. */
const wrapped: readonly [string, (type: ColumnType) => ColumnType, string][] = [
  [
    "in a struct",
    (type) => ({
      kind: "struct",
      fields: [
        { name: "a", type: "int32" },
        { name: "b", type },
      ],
    }),
    "struct_pack(a := 7, b := v)",
  ],
  ["in a list", (type) => ({ kind: "list", element: type }), "list_value(v, NULL, v)"],
  [
    "in a struct in a list, beside NULLs",
    (type) => ({ kind: "list", element: { kind: "struct", fields: [{ name: "b", type }] } }),
    "CASE WHEN row % 5 <> 0 THEN list_value(struct_pack(b := v), NULL) END",
  ],
];

describe.each(wrapped.map(([what, typeOf, expression], index) => ({ what, typeOf, expression, index })))(
  "$what",
  ({ typeOf, expression, index }) => {
    // In short, each type in one of them.
    const cases = typeCases.filter((_, at) => torture || at % wrapped.length === index);

    test.each(cases)("$name survives writing and reading a DuckDB column in it", async ({ type, ...given }) => {
      const select = `SELECT row, ${expression} AS v FROM original WHERE row % 3 <> 1`;
      const inner: TypeCase = { ...given, type };
      const result = await withConnection(async (connection) => {
        await connection.run(tableSql(inner, "row % 7 = 3"));
        const spans = await readSpans(connection, select, { type: typeOf(type), spanRows: 901 });
        await writeSpans(connection, typeOf(type), spans);
        return await differences(connection, select);
      });
      expect(result).toEqual([]);
    });
  },
);

test("the cases cover all scalar types", () => {
  const tried = new Set(typeCases.map(({ type }) => type));
  expect(scalarTypes.filter((type) => !tried.has(type))).toEqual([]);
});

test.each([
  ["a map", "MAP {'a': 1}"],
  ["a list of maps", "[MAP {'a': 1}]"],
  ["a struct with a map", "{'a': 1, 'b': MAP {'a': 1}}"],
  ["a union", "union_value(a := 1)"],
  ["an enum", "'a'::ENUM ('a', 'b')"],
  ["a 128-bit integer", "1::HUGEINT"],
  ["bits", "'101'::BIT"],
  ["a fixed-size array", "[1, 2]::INTEGER[2]"],
])("DuckDB's %s has no column type", async (_what, sql) => {
  await withConnection(async (connection) => {
    const result = await connection.run(`SELECT ${sql}`);
    expect(columnTypeOf(result.columnType(0))).toBeUndefined();
  });
});
