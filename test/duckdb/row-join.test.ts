import { join } from "node:path";
import { expect, test } from "vitest";
import type { MatchedRows } from "#src/checks/agreement.js";
import { type DuckDBConnection, openDuckDb } from "#src/duckdb/instance.js";
import { compareRows } from "#src/duckdb/row-join.js";
import { readStored, type StoredGroups } from "#src/duckdb/stored-rows.js";
import { scratch } from "../support/job.js";
import { writeRows } from "../support/parquet.js";
import { randomOf } from "../support/random.js";

function watched(connection: DuckDBConnection, statements: string[]): DuckDBConnection {
  return new Proxy(connection, {
    get: (of, name) =>
      name === "run"
        ? async (sql: string) => (statements.push(sql), await of.run(sql))
        : Reflect.get(of, name).bind(of),
  });
}

interface Row {
  readonly id: number | null;
  readonly part: string;
  readonly score: number;
}

/** Rows of which some have the same key, and some none. */
function someRows(random: () => number, count: number): Row[] {
  return Array.from({ length: count }, () => ({
    id: random() < 0.05 ? null : Math.floor(random() * 300) - 150,
    part: random() < 0.7 ? "x" : "y",
    score: Math.floor(random() * 3),
  }));
}

const sqlOf = (rows: readonly Row[], type: string): string =>
  `SELECT id::${type} AS id, part, score::FLOAT AS score FROM (VALUES ${rows
    .map(({ id, part, score }) => `(${id ?? "NULL"}, '${part}', ${score})`)
    .join(", ")}) AS t (id, part, score)`;

function expectedOf(
  a: readonly Row[],
  b: readonly Row[],
): { readonly counts: Omit<MatchedRows, "repeated">; readonly alone: number[] } {
  const keyOf = ({ id, part }: Row): string => `${id} ${part}`;
  const [inA, inB] = [a, b].map((rows) => {
    const groups = new Map<string, Row[]>();
    rows.forEach((row) => groups.set(keyOf(row), [...(groups.get(keyOf(row)) ?? []), row]));
    return groups;
  }) as [Map<string, Row[]>, Map<string, Row[]>];
  const alone = [0, 0];
  const counts = { rows_gone: 0, rows_added: 0, rows_compared: 0, keys_repeated: 0, keys_uneven: 0, rows_changed: 0 };
  for (const key of new Set([...inA.keys(), ...inB.keys()])) {
    const [one, other] = [inA.get(key) ?? [], inB.get(key) ?? []];
    counts.rows_gone += other.length === 0 ? one.length : 0;
    counts.rows_added += one.length === 0 ? other.length : 0;
    const isRepeated = one.length > 1 || other.length > 1;
    counts.keys_repeated += isRepeated ? 1 : 0;
    counts.keys_uneven += isRepeated && one.length !== other.length ? 1 : 0;
    [one, other].forEach((rows, side, both) => {
      alone[side] = (alone[side] ?? 0) + (rows.length > 1 && both[1 - side]?.length === 1 ? 1 : 0);
    });
    if (one.length === 1 && other.length === 1) {
      counts.rows_compared += 1;
      counts.rows_changed += one[0]?.score === other[0]?.score ? 0 : 1;
    }
  }
  return { counts: { rows_a: a.length, rows_b: b.length, ...counts }, alone };
}

async function joined(
  connection: DuckDBConnection,
  key: readonly string[],
  memoryBytes = 2 ** 30,
): Promise<MatchedRows & { readonly passes: number }> {
  const statements: string[] = [];
  const score = { name: "score", type: "float32" } as const;
  const { rows } = await compareRows(
    { connection: watched(connection, statements), memoryBytes, columns: { a: [score], b: [score] } },
    { key, columns: [{ name: "score", a: "float32", b: "float32" }], shown: [], tolerance: 0 },
  );
  return { ...rows, passes: statements.filter((sql) => sql.startsWith("INSERT INTO joined")).length };
}

async function tables(a: string, b: string): Promise<{ readonly connection: DuckDBConnection } & Disposable> {
  const duckdb = await openDuckDb({ threads: 1, allowed: {} });
  const connection = await duckdb.connect();
  await connection.run(`CREATE TEMP TABLE a AS ${a}; CREATE TEMP TABLE b AS ${b}`);
  return {
    connection,
    [Symbol.dispose]() {
      connection.closeSync();
      duckdb[Symbol.dispose]();
    },
  };
}

test.each([
  { passes: "one pass", type: "BIGINT", memoryBytes: 2 ** 30 },
  { passes: "several passes", type: "BIGINT", memoryBytes: 2 ** 13 },
  { passes: "several passes", type: "DECIMAL(12,2)", memoryBytes: 2 ** 13 },
])(
  "rows are matched by keys of INTEGER and $type in $passes as one by one: repeated keys, NULLs and negative keys",
  async ({ type, memoryBytes }) => {
    const random = randomOf(11);
    const [a, b] = [someRows(random, 250), someRows(random, 280)];
    using duckdb = await tables(sqlOf(a, "INTEGER"), sqlOf(b, type));
    const { repeated, passes, ...counts } = await joined(duckdb.connection, ["id", "part"], memoryBytes);
    const expected = expectedOf(a, b);
    expect(counts).toEqual(expected.counts);
    // So many that some are in each pass.
    expect(Math.min(...expected.alone)).toBeGreaterThanOrEqual(10);
    expect(repeated).toHaveLength(5);
    expect(passes > 2).toBe(memoryBytes < 2 ** 20);
  },
);

test.each([
  ["BIGINT", "DOUBLE", "9007199254740993"],
  ["BIGINT", "DOUBLE", "-9223372036854775808"],
  ["INTEGER", "FLOAT", "16777217"],
  ["DECIMAL(18,2)", "DOUBLE", "9999999999999999.99"],
  ["DECIMAL(18,10)", "DECIMAL(38,0)", "0.5000000000"],
  ["BIGINT[]", "DOUBLE[]", "[9007199254740993]"],
  ['STRUCT("n" BIGINT)', 'STRUCT("n" DOUBLE)', "{'n': 9007199254740993}"],
  ["TIMESTAMP", "TIMESTAMP_NS", "2500-01-01 00:00:00"],
])("keys of %s and %s are refused for a value that would be rounded, such as %s", async (one, other, value) => {
  const rows = (type: string): string =>
    `SELECT ${type === one ? `'${value.replaceAll("'", "''")}'` : "NULL"}::${type} AS id, 1::FLOAT AS score`;
  for (const [typeA, typeB] of [
    [one, other],
    [other, one],
  ] as const) {
    using duckdb = await tables(rows(typeA), rows(typeB));
    await expect(joined(duckdb.connection, ["id"])).rejects.toMatchObject({
      code: "USAGE",
      message: `comparing the rows: key column id is ${typeA} in A and ${typeB} in B: ${value} would be rounded`,
      hint: expect.stringContaining("name other columns with --key"),
    });
  }
});

test("a number of a float key that may have been rounded matches no exact key", async () => {
  using duckdb = await tables(
    "SELECT 1::BIGINT AS id, 1::FLOAT AS score",
    "SELECT 1e16::DOUBLE AS id, 1::FLOAT AS score",
  );
  await expect(joined(duckdb.connection, ["id"])).rejects.toMatchObject({ code: "USAGE" });
});

test("keys of text and of floating-point numbers are refused: equal numbers may have different texts", async () => {
  using duckdb = await tables("SELECT '1' AS id, 1::FLOAT AS score", "SELECT 1::DOUBLE AS id, 1::FLOAT AS score");
  await expect(joined(duckdb.connection, ["id"])).rejects.toMatchObject({
    message:
      "comparing the rows: key column id is VARCHAR in A and DOUBLE in B: equal numbers may have different texts",
  });
});

function rowsOf(type: string, from: number): string {
  return `SELECT range::${type} AS id, 1::FLOAT AS score FROM range(${from}, 5)`;
}

test.each([
  ["INTEGER", "DOUBLE"],
  ["BIGINT", "DOUBLE"],
  ["SMALLINT", "FLOAT"],
  ["DECIMAL(18,2)", "DECIMAL(20,2)"],
  ["DECIMAL(18,0)", "VARCHAR"],
])("keys of %s and %s are matched: none is rounded", async (one, other) => {
  using duckdb = await tables(rowsOf(one, 1), rowsOf(other, 2));
  expect(await joined(duckdb.connection, ["id"])).toMatchObject({ rows_compared: 3, rows_gone: 1, rows_added: 0 });
});

test("keys of FLOAT and DOUBLE are matched, as each FLOAT is a DOUBLE", async () => {
  using duckdb = await tables(
    "SELECT id, 1::FLOAT AS score FROM (VALUES (0.5::FLOAT), (0.1::FLOAT)) AS t (id)",
    "SELECT id, 1::FLOAT AS score FROM (VALUES (0.5::DOUBLE), (0.1::DOUBLE)) AS t (id)",
  );
  expect(await joined(duckdb.connection, ["id"])).toMatchObject({ rows_compared: 1, rows_gone: 1, rows_added: 1 });
});

test("rows of a key that is in both tables 200,000 times are counted, and never joined with each other", async () => {
  const rows = "SELECT if(i < 200000, NULL, i)::INTEGER AS id, i::FLOAT AS score FROM range(200010) t(i)";
  using duckdb = await tables(rows, rows);
  expect(await joined(duckdb.connection, ["id"])).toMatchObject({
    rows_compared: 10,
    keys_repeated: 1,
    repeated: [{ a: 200_000, b: 200_000 }],
  });
});

const columns = {
  key: [{ name: "id", type: "int32" as const }],
  outputs: [],
  hash: { name: "hash", type: "int32" as const },
};

function filesOf(path: string): StoredGroups {
  const groups = (async function* () {
    yield await Promise.resolve([path]);
  })();
  return { format: "parquet", groups };
}

test("rows that come in another number than were stored are an error: DuckDB's streams end silently", async () => {
  const path = join(scratch.path, "part.parquet");
  await writeRows(path, "SELECT i::INTEGER AS id, i::INTEGER AS hash FROM range(10) t(i)");
  using duckdb = await openDuckDb({ threads: 1, memoryBytes: 64 << 20, allowed: { folders: [scratch.path] } });
  const connection = await duckdb.connect();
  const count = async (rows: number): Promise<number> => {
    let found = 0;
    for await (const { rowCount } of readStored(connection, columns, { ...filesOf(path), rows })) {
      found += rowCount;
    }
    return found;
  };
  expect(await count(10)).toBe(10);
  await expect(count(11)).rejects.toThrow("10 rows came, 11 were stored");
  connection.closeSync();
});
