import { quoteName } from "../base/sql.js";
import type { Agreement, JoinRequest, MatchedRows, Measures } from "../checks/agreement.js";
import type { OutputRows, SourceColumn } from "../columns/types.js";
import { JobError } from "../base/errors.js";
import { rowNumberColumn } from "../models/binding/contract.js";
import type { LocalParts, RunRows, StoredColumn, StoredSpans, StoredTable } from "../run/lifecycle/span-record.js";
import { beyondSql, distanceSql, type IndexedColumn, measureColumn, numbersOf } from "./agreement.js";
import type { DuckDBConnection } from "./instance.js";
import { readColumns } from "./parquet-schema.js";
import { csvRows, quotePath, quotePaths } from "./sql.js";
import { appendRows, createTable } from "./vectors.js";

type JoinSide = "a" | "b";

/** A column of a table. Type undefined: no type that is known. */
type JoinColumn = Pick<SourceColumn, "name" | "type"> & Pick<StoredColumn, "hasNumbers">;

/**
 * Two tables of rows, `a` and `b`, in a DuckDB, which spills what does not fit in memory. A key column that is NULL
 * equals another one that is NULL.
 */
export interface RowJoin {
  readonly connection: DuckDBConnection;
  /** The memory limit of the DuckDB. */
  readonly memoryBytes: number;
  readonly columns: Record<JoinSide, readonly JoinColumn[]>;
}

/** Loads files into a table, a group at a time, in place of what was in it, and returns its columns. */
export async function loadRows(
  { connection, columns }: RowJoin,
  side: JoinSide,
  rows: StoredTable | LocalParts,
): Promise<readonly JoinColumn[]> {
  const { groups, isNamed = false } = rows;
  const typed = "columns" in rows ? rows.columns : undefined;
  columns[side] = []; // there may be no files
  async function* queries(): AsyncGenerator<string> {
    for await (const paths of groups) {
      const named = isNamed
        ? `read_csv(${quotePaths(paths)}, header = true, all_varchar = true)`
        : `read_parquet(${quotePaths(paths)}, hive_partitioning = false)`;
      const sql = `SELECT * FROM ${typed === undefined ? named : csvRows(typed, paths)}`;
      if (columns[side].length === 0 && isNamed) {
        const names = (await connection.run(`${sql} LIMIT 0`)).columnNames();
        columns[side] = names.map((name) => ({ name, type: "utf8" }));
      } else if (columns[side].length === 0) {
        columns[side] = typed ?? (await readColumns(connection, paths[0] ?? ""));
      }
      yield sql;
    }
  }
  await fill(connection, side, queries());
  return columns[side];
}

async function fill(connection: DuckDBConnection, table: string, queries: AsyncIterable<string>): Promise<void> {
  let verb = `CREATE OR REPLACE TEMP TABLE ${table} AS`;
  for await (const sql of queries) {
    await connection.run(`${verb} ${sql}`);
    verb = `INSERT INTO ${table}`;
  }
}

/** Adds rows to a table, whose columns are those of the first rows that are added. */
export async function addRows({ connection, columns }: RowJoin, side: JoinSide, rows: OutputRows): Promise<void> {
  if (columns[side].length > 0) {
    await appendRows(connection, side, rows);
    return;
  }
  columns[side] = rows.columns.map(({ name, type }) => ({ name, type }));
  await createTable(connection, side, rows);
}

/**
 * Loads the rows of two runs of the same input, and numbers those of A if they are spans. Those of B have the column _row with
 * their numbers. Counts the rows that B has rejected, and A has not, by reason. @throws Error if the spans do not fit
 */
export async function loadRuns(join: RowJoin, a: RunRows, b: RunRows): Promise<Record<string, number>> {
  const { connection } = join;
  for (const [side, { rejected }] of [["a", a] as const, ["b", b] as const]) {
    await connection.run(`CREATE OR REPLACE TEMP TABLE rejected_${side} (_row BIGINT, reason VARCHAR)`);
    const appender = await connection.createAppender(`rejected_${side}`);
    for await (const { row, reason } of rejected) {
      appender.appendBigInt(BigInt(row));
      appender.appendVarchar(reason);
      appender.endRow();
    }
    appender.closeSync();
  }
  await loadRows(join, "b", b.files);
  await ("spans" in a.files ? loadNumbered(join, a.files, a) : loadRows(join, "a", a.files));
  const missed = await selectRowsOf(
    join,
    "SELECT reason, count(*)::DOUBLE FROM rejected_b ANTI JOIN rejected_a USING (_row) GROUP BY 1 ORDER BY 1",
  );
  return Object.fromEntries(missed.map(([reason, rows]) => [String(reason), Number(rows)]));
}

/**
 * Loads the spans of A, and numbers its rows: within a span they are in order, and they are the rows that B has or has
 * rejected, without those that A has rejected.
 */
async function loadNumbered(join: RowJoin, files: StoredSpans, { rowCount, commitRows }: RunRows): Promise<void> {
  const { connection, columns } = join;
  columns.a = [];
  async function* queries(): AsyncGenerator<string> {
    for await (const { span, path } of files.spans()) {
      columns.a = columns.a.length === 0 ? await readColumns(connection, path) : columns.a;
      yield `SELECT *, ${span}::BIGINT AS _span_of_run FROM read_parquet(${quotePath(path)}, hive_partitioning = false, file_row_number = true)`;
    }
  }
  await fill(connection, "placed", queries());
  if (columns.a.length === 0 || columns.b.length === 0) {
    return; // there are no spans
  }
  const placed = await countOf(join, "placed");
  let number = `placed._span_of_run * ${commitRows} + placed.file_row_number`;
  let from = "placed";
  if (placed < rowCount) {
    await connection.run(
      `CREATE OR REPLACE TEMP TABLE numbers AS SELECT _row, _row // ${commitRows} AS span,
          row_number() OVER (PARTITION BY _row // ${commitRows} ORDER BY _row) - 1 AS place
        FROM (SELECT _row FROM b UNION ALL SELECT _row FROM rejected_b) ANTI JOIN rejected_a USING (_row)`,
    );
    number = "numbers._row";
    from = "placed JOIN numbers ON numbers.span = placed._span_of_run AND numbers.place = placed.file_row_number";
    const numbered = await countOf(join, "numbers");
    if (placed !== numbered || (await countOf(join, from)) !== placed) {
      throw new Error(`${placed} rows were scored by the one model, and ${numbered} rows came to the other one`);
    }
  }
  await connection.run(
    `CREATE OR REPLACE TEMP TABLE a AS SELECT placed.* EXCLUDE (_span_of_run, file_row_number), ${number} AS _row FROM ${from}`,
  );
  await connection.run("DROP TABLE placed; DROP TABLE IF EXISTS numbers");
}

/** The number of repeated keys that are named. */
const shownKeys = 5;

const noRows: MatchedRows = {
  rows_a: 0,
  rows_b: 0,
  rows_gone: 0,
  rows_added: 0,
  rows_compared: 0,
  rows_changed: 0,
  keys_repeated: 0,
  keys_uneven: 0,
  repeated: [],
};

/**
 * Joins the rows of the keys that are once in each table, and says how many rows match, and how their columns agree. Large
 * tables are joined in several passes, each over the keys with some of the hashes.
 */
export async function compareRows(join: RowJoin, request: JoinRequest): Promise<Pick<Agreement, "rows" | "columns">> {
  const { connection } = join;
  const { key, shown, tolerance } = request;
  if (join.columns.a.length === 0 || join.columns.b.length === 0) {
    return { rows: noRows, columns: [] };
  }
  const keys = await sharedKey(join, key);
  const names = keys.map((_, index) => `k${index}`);
  const compared = request.columns.map((column, index) => ({ ...column, index }));
  await joinPasses(join, keys, compared, request);

  const beyond = compared.map((column) => beyondSql(column, tolerance));
  const changed = await countOf(join, `joined WHERE ${beyond.length === 0 ? "false" : beyond.join(" OR ")}`);
  const rowNames = {
    // 53 bits of the hash of the key, so that what is chosen by number depends on the rows alone, not on the order in which
    // DuckDB joined them. Two of 100 million rows may share a number.
    number: isNumbered(key) ? "k0" : `(hash(${names.join(", ")}) >> 11)::BIGINT`,
    shown: shown.map((name, index) => ({ name, sql: key.includes(name) ? `k${key.indexOf(name)}` : `s${index}` })),
  };
  const columns: [string, Measures][] = [];
  for (const column of compared) {
    columns.push([column.name, await measureColumn(connection, column, rowNames, tolerance)]);
  }
  return { rows: { ...(await countRows(join, names)), rows_changed: changed }, columns };
}

/** Whether a key is the number of a row, which no other row of its side has. */
function isNumbered(key: readonly string[]): boolean {
  return key.length === 1 && key[0] === rowNumberColumn.name;
}

/**
 * Joins the tables into `joined`: keys k0, k1, … of types that both share, shown columns s0, s1, …, and of compared columns
 * the values a0, b0, … with their distances d0, d1, … Keys that are several times in a side go into `repeated`.
 */
async function joinPasses(
  join: RowJoin,
  keys: readonly string[],
  compared: readonly IndexedColumn[],
  { key, shown }: JoinRequest,
): Promise<void> {
  const run = async (sql: string): Promise<unknown> => await join.connection.run(sql);
  const passes = await countPasses(join.connection, join.memoryBytes);
  const names = keys.map((_, index) => `k${index}`);
  const [list, hash] = [names.join(", "), `hash(${names.join(", ")})`];
  const named = shown.map((name, index) => `${quoteName(name)} AS s${index}`);
  const read = [
    ...keys.map((sql, index) => `${sql} AS k${index}`),
    ...compared.map(({ name, index }) => `${quoteName(name)} AS v${index}`),
  ];
  const rowsIn = (side: JoinSide, pass: number): string =>
    `(SELECT ${[...read, ...(side === "a" ? named : [])].join(", ")} FROM ${side} WHERE ${isInPass(keys, pass, passes)})`;
  const equal = (one: string, other: string): string =>
    names.map((name) => `${one}.${name} IS NOT DISTINCT FROM ${other}.${name}`).join(" AND ");
  const selected = [
    ...names.map((name) => `a.${name}`),
    ...shown.map((_, index) => `a.s${index}`),
    ...compared.flatMap((column) => {
      const [a, b] = [`a.v${column.index}`, `b.v${column.index}`];
      return [
        `${a} AS a${column.index}`,
        `${b} AS b${column.index}`,
        `${distanceSql(column, a, b)} AS d${column.index}`,
      ];
    }),
  ].join(", ");

  await run(`CREATE OR REPLACE TEMP TABLE repeated AS SELECT ${list}, 0::BIGINT AS a, 0::BIGINT AS b
    FROM ${rowsIn("a", 0)} LIMIT 0`);
  for (let pass = 0; pass < passes; pass += 1) {
    const [a, b] = [rowsIn("a", pass), rowsIn("b", pass)];
    if (!isNumbered(key)) {
      // Groups of hashes take less memory than groups of keys: keys are grouped only where a hash is several times there.
      const hashes = (rows: string): string => `SELECT ${hash} FROM ${rows} GROUP BY 1 HAVING count(*) > 1`;
      await run(`CREATE OR REPLACE TEMP TABLE several AS SELECT ${list}, sum(of_a) AS rows_a, sum(of_b) AS rows_b
        FROM (SELECT ${list}, 1 AS of_a, 0 AS of_b FROM ${a} UNION ALL SELECT ${list}, 0, 1 FROM ${b})
        WHERE ${hash} IN (${hashes(a)} UNION ${hashes(b)}) GROUP BY ${list} HAVING rows_a > 1 OR rows_b > 1`);
      await run("INSERT INTO repeated FROM several");
    }
    // Without the keys that repeat: a key that is 100,000 times in both would give 10^10 rows.
    const alone = isNumbered(key) ? a : `(SELECT * FROM ${a} AS a ANTI JOIN several ON ${equal("a", "several")})`;
    await run(`${pass === 0 ? "CREATE OR REPLACE TEMP TABLE joined AS" : "INSERT INTO joined"}
      SELECT ${selected} FROM ${alone} AS a JOIN ${b} AS b ON ${equal("a", "b")}`);
  }
}

async function countRows(join: RowJoin, names: readonly string[]): Promise<Omit<MatchedRows, "rows_changed">> {
  const [a, b, matched] = [await countOf(join, "a"), await countOf(join, "b"), await countOf(join, "joined")];
  const [repeated, uneven, repeatedA, repeatedB] = await numbersOf(
    join.connection,
    `SELECT count(*), count(*) FILTER (WHERE a <> b), coalesce(sum(a) FILTER (WHERE b > 0), 0),
       coalesce(sum(b) FILTER (WHERE a > 0), 0) FROM repeated`,
  );
  const examples = await selectRowsOf(
    join,
    `SELECT concat_ws(', ', ${names.map((name) => `coalesce(left(${name}::VARCHAR, 60), 'NULL')`).join(", ")}) AS key,
       a::DOUBLE, b::DOUBLE FROM repeated ORDER BY abs(a - b) DESC, 1 LIMIT ${shownKeys}`,
  );
  return {
    rows_a: a,
    rows_b: b,
    rows_gone: a - matched - repeatedA,
    rows_added: b - matched - repeatedB,
    rows_compared: matched,
    keys_repeated: repeated,
    keys_uneven: uneven,
    repeated: examples.map(([text, one, other]) => ({ key: String(text), a: Number(one), b: Number(other) })),
  };
}

async function countOf(join: RowJoin, rows: string): Promise<number> {
  const [[count] = []] = await selectRowsOf(join, `SELECT count(*)::DOUBLE FROM ${rows}`);
  return Number(count);
}

/** Runs a query with few rows. */
export async function selectRowsOf({ connection }: Pick<RowJoin, "connection">, sql: string): Promise<unknown[][]> {
  return (await connection.runAndReadAll(sql)).getRows();
}

/**
 * SQL of the key columns, in either table, as values of the types that both share.
 * @throws JobError USAGE if a value is not exact as such a type: keys that differ would be equal
 */
export async function sharedKey(join: RowJoin, key: readonly string[]): Promise<readonly string[]> {
  const names = key.map(quoteName).join(", ");
  const typesIn = async (sql: string): Promise<readonly string[]> =>
    (await join.connection.run(`${sql} LIMIT 0`)).columnTypes().map(String);
  const [ofA, ofB] = [await typesIn(`SELECT ${names} FROM a`), await typesIn(`SELECT ${names} FROM b`)];
  const shared = await typesIn(`SELECT ${names} FROM a UNION ALL SELECT ${names} FROM b`);
  return await Promise.all(
    key.map(async (name, index) => {
      const [a = "", b = "", both = ""] = [ofA[index], ofB[index], shared[index]];
      const value = quoteName(name);
      const [inA, inB] = [["a", a] as const, ["b", b] as const].map(([side, type]) =>
        join.columns[side].some((column) => column.name === name && column.hasNumbers) ? "a number" : type,
      );
      if (inA === inB) {
        return value;
      }
      const floats = [a, b].filter((type) => type === "FLOAT" || type === "DOUBLE");
      const isText =
        (both === "VARCHAR" && floats.length > 0) ||
        ([inA, inB].includes("a number") && [a, b].join() === "VARCHAR,VARCHAR");
      const refusal = (reason: string): JobError =>
        new JobError("USAGE", `comparing the rows: key column ${name} is ${inA} in A and ${inB} in B: ${reason}`, {
          hint: "compare tables or folders in which it has the same type, or name other columns with --key",
        });
      if (isText) {
        throw refusal("equal numbers may have different texts");
      }
      // A larger float may have been any number that is rounded to it.
      const most = `2 ** ${floats.includes("FLOAT") ? 24 : 53}`;
      const isLarge = `abs(${value}::DOUBLE) > ${most} AND isfinite(${value}::DOUBLE)`;
      for (const [side, type] of [["a", a] as const, ["b", b] as const]) {
        const [[inexact] = []] = await selectRowsOf(
          join,
          `SELECT any_value(${value}::VARCHAR) FROM ${side} WHERE ${floats.length === 1 ? isLarge : "false"}
            OR try(CAST(CAST(${value} AS ${both}) AS ${type})) IS DISTINCT FROM ${value}`,
        );
        if (typeof inexact === "string") {
          throw refusal(`${inexact} would be rounded`);
        }
      }
      return `CAST(${value} AS ${both})`;
    }),
  );
}

/** In memory limits, of both tables. DuckDB joins what does not fit, but fails where it is some twenty times that. */
const limitsAtOnce = 4;

async function countPasses(connection: DuckDBConnection, memoryBytes: number): Promise<number> {
  const result = await connection.runAndReadAll(
    "SELECT sum(memory_usage_bytes + temporary_storage_bytes)::DOUBLE FROM duckdb_memory()",
  );
  const [[bytes] = []] = result.getRows();
  return Math.max(1, Math.ceil(Number(bytes) / (limitsAtOnce * memoryBytes)));
}

/** SQL for the condition that a row is joined in a pass. `keys`: SQL of its key columns. */
function isInPass(keys: readonly string[], pass: number, passes: number): string {
  // The 0 makes it another hash than that of the join, which needs all of the bits of its own.
  return passes === 1 ? "true" : `hash(${keys.join(", ")}, 0) % ${passes} = ${pass}`;
}
