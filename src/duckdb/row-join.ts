import { DuckDBDecimalType, DuckDBListType, DuckDBStructType, type DuckDBType, DuckDBTypeId } from "@duckdb/node-api";
import type { Agreement, JoinRequest, MatchedRows, Measures, NumberedSpan } from "../checks/agreement.js";
import type { ColumnType, OutputRows, SourceColumn } from "../columns/types.js";
import { JobError, messageOf } from "../base/errors.js";
import { beyondSql, type JoinedColumn, distanceSql, measureColumn } from "./agreement.js";
import type { DuckDBConnection } from "./instance.js";
import { readColumns } from "./parquet-schema.js";
import { csvRows, firstLine, quoteName, quotePath, quotePaths, quoteText } from "./sql.js";
import { appendRows, createTable } from "./vectors.js";

type JoinSide = "a" | "b";

/** A column of a table. Type undefined: no type that is known. */
type JoinColumn = Pick<SourceColumn, "name" | "type">;

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

interface LoadedRows {
  readonly groups: AsyncIterable<readonly string[]>;
  /** The columns of CSV files without a header; absent: the files are Parquet, or their first lines name the columns. */
  readonly columns?: readonly { readonly name: string; readonly type: ColumnType }[];
  /** Whether the files are CSV files whose first lines name the columns, all of which are texts. */
  readonly isNamed?: boolean;
}

/** Loads files into a table, a group at a time, in place of what was in it, and returns its columns. */
export async function loadRows(
  { connection, columns }: RowJoin,
  side: JoinSide,
  { groups, columns: typed, isNamed = false }: LoadedRows,
): Promise<readonly JoinColumn[]> {
  columns[side] = []; // there may be no files
  let isFirst = true;
  for await (const paths of groups) {
    const named = isNamed
      ? `read_csv(${quotePaths(paths)}, header = true, all_varchar = true)`
      : `read_parquet(${quotePaths(paths)}, hive_partitioning = false)`;
    const rows = `SELECT * FROM ${typed === undefined ? named : csvRows(typed, paths)}`;
    if (isFirst && isNamed) {
      const names = (await connection.run(`${rows} LIMIT 0`)).columnNames();
      columns[side] = names.map((name) => ({ name, type: "utf8" }));
    } else if (isFirst) {
      columns[side] = typed ?? (await readColumns(connection, paths[0] ?? ""));
    }
    await connection.run(isFirst ? `CREATE OR REPLACE TEMP TABLE ${side} AS ${rows}` : `INSERT INTO ${side} ${rows}`);
    isFirst = false;
  }
  return columns[side];
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

/** Rows that are added at once. */
const rejectsAtOnce = 65_536;

/** Loads the numbers of rejected rows into the table `rejected_a` or `rejected_b`. */
export async function loadRejected(
  { connection }: RowJoin,
  side: JoinSide,
  rejected: AsyncIterable<{ readonly row: number; readonly reason: string }>,
): Promise<void> {
  await connection.run(`CREATE OR REPLACE TEMP TABLE rejected_${side} (_row BIGINT, reason VARCHAR)`);
  let values: string[] = [];
  const add = async (): Promise<void> => {
    if (values.length > 0) {
      await connection.run(`INSERT INTO rejected_${side} VALUES ${values.join(", ")}`);
      values = [];
    }
  };
  for await (const { row, reason } of rejected) {
    values.push(`(${row}, ${quoteText(reason)})`);
    if (values.length === rejectsAtOnce) {
      await add();
    }
  }
  await add();
}

/** Counts the rows that B has rejected, and A has not, by reason. */
export async function missedRows(join: Pick<RowJoin, "connection">): Promise<Map<string, number>> {
  const missed = await rowsOf(
    join,
    `SELECT reason, count(*)::DOUBLE FROM rejected_b AS b ANTI JOIN rejected_a AS a ON a._row = b._row GROUP BY 1 ORDER BY 1`,
  );
  return new Map(missed.map(([reason, rows]) => [String(reason), Number(rows)]));
}

/**
 * Loads the spans of two runs of the same rows, and numbers those of A: within a span, its rows are in order, and they are
 * the rows that B has or has rejected, without those that A has rejected.
 */
export async function loadSpans(
  join: RowJoin,
  a: AsyncIterable<NumberedSpan>,
  b: AsyncIterable<NumberedSpan>,
): Promise<void> {
  const { connection, columns } = join;
  for (const [side, name, spans] of [["a", "placed", a] as const, ["b", "b", b] as const]) {
    let isFirst = true;
    for await (const { path, rowStart } of spans) {
      const rows = `SELECT *, ${rowStart}::BIGINT AS _span_of_run FROM read_parquet(${quotePath(path)}, hive_partitioning = false, file_row_number = true)`;
      if (isFirst) {
        columns[side] = await readColumns(connection, path);
      }
      await connection.run(isFirst ? `CREATE OR REPLACE TEMP TABLE ${name} AS ${rows}` : `INSERT INTO ${name} ${rows}`);
      isFirst = false;
    }
  }
  if (columns.a.length === 0 || columns.b.length === 0) {
    return; // there are no spans
  }
  const placed = await countOf(join, "placed");
  const moved = "b WHERE _row <> _span_of_run + file_row_number UNION ALL SELECT 1 FROM rejected_a";
  const [[isMoved] = []] = await rowsOf(join, `SELECT count(*) > 0 FROM (SELECT 1 FROM ${moved})`);
  if (isMoved === false && placed === (await countOf(join, "b"))) {
    // No row was rejected or filtered out.
    await connection.run(
      "CREATE OR REPLACE TEMP TABLE a AS SELECT placed.* EXCLUDE (_span_of_run, file_row_number), _span_of_run + file_row_number AS _row FROM placed",
    );
    await connection.run("DROP TABLE placed");
    return;
  }
  // A span begins at its row, so that a rejected row is of the last span that begins before it.
  await connection.run(
    `CREATE OR REPLACE TEMP TABLE numbers AS
      WITH spans AS (SELECT DISTINCT _span_of_run AS _span FROM placed UNION SELECT DISTINCT _span_of_run FROM b),
        rejected AS (SELECT _span, _row FROM rejected_b AS r ASOF JOIN spans ON r._row >= spans._span)
      SELECT _span, _row, row_number() OVER (PARTITION BY _span ORDER BY _row) - 1 AS place
      FROM (SELECT _span_of_run AS _span, _row FROM b UNION ALL SELECT _span, _row FROM rejected) AS n
      ANTI JOIN rejected_a AS r ON r._row = n._row`,
  );
  await connection.run(
    `CREATE OR REPLACE TEMP TABLE a AS SELECT placed.* EXCLUDE (_span_of_run, file_row_number), numbers._row
      FROM placed JOIN numbers ON numbers._span = placed._span_of_run AND numbers.place = placed.file_row_number`,
  );
  const numbered = await countOf(join, "numbers");
  if (placed !== numbered || (await countOf(join, "a")) !== placed) {
    throw new Error(`${placed} rows were scored by the one model, and ${numbered} rows came to the other one`);
  }
  await connection.run("DROP TABLE placed; DROP TABLE numbers");
}

/** The number of repeated keys that are named. */
const shownKeys = 5;

const noRows: MatchedRows = {
  rowsA: 0,
  rowsB: 0,
  onlyA: 0,
  onlyB: 0,
  matched: 0,
  changed: 0,
  repeated: 0,
  uneven: 0,
  examples: [],
};

/**
 * Joins the rows of the keys that are once in each table, and says how many rows match, and how their columns agree. Large
 * tables are joined in several passes, each over the keys with some of the hashes.
 */
export async function compareRows(join: RowJoin, request: JoinRequest): Promise<Agreement> {
  const { connection } = join;
  const { key, shown, tolerance, isNumbered } = request;
  if (join.columns.a.length === 0 || join.columns.b.length === 0) {
    return { rows: noRows, columns: new Map() };
  }
  const keys = await sharedKey(connection, key);
  const names = keys.map((_, index) => `k${index}`);
  const compared = request.columns.map((name, index) => ({ name, index, ...typesOf(join, name) }));
  await convertingKeys(keys, () => joinPasses(join, keys, compared, request));

  const rows = await countRows(join, names);
  const beyond = compared.map((column) =>
    beyondSql(column, [`a${column.index}`, `b${column.index}`, `d${column.index}`], tolerance),
  );
  const changed = await countOf(join, `joined WHERE ${beyond.length === 0 ? "false" : beyond.join(" OR ")}`);
  const rowNames = {
    // 53 bits of the hash of the key, so that what is chosen by number depends on the rows alone, not on the order in which
    // DuckDB joined them. Two of 100 million rows may share a number.
    number: isNumbered ? "k0" : `(hash(${names.join(", ")}) >> 11)::BIGINT`,
    shown: shown.map((name, index) => ({ name, sql: key.includes(name) ? `k${key.indexOf(name)}` : `s${index}` })),
  };
  const columns = new Map<string, Measures>();
  for (const column of compared) {
    columns.set(column.name, await measureColumn(connection, column, rowNames, tolerance));
  }
  return { rows: { ...rows, changed }, columns };
}

function typesOf({ columns }: RowJoin, name: string): Pick<JoinedColumn, "a" | "b"> {
  const typeIn = (side: JoinSide): ColumnType => {
    const type = columns[side].find((column) => column.name === name)?.type;
    if (type === undefined) {
      throw new RangeError(`column ${name} has no type that is known`);
    }
    return type;
  };
  return { a: typeIn("a"), b: typeIn("b") };
}

/**
 * Joins the tables into `joined`: keys k0, k1, … of types that both share, shown columns s0, s1, …, and of compared columns
 * the values a0, b0, … with their distances d0, d1, … Keys that are several times in a side go into `repeated`.
 */
async function joinPasses(
  join: RowJoin,
  key: readonly KeyColumn[],
  compared: readonly (JoinedColumn & { readonly index: number })[],
  { shown, isNumbered }: JoinRequest,
): Promise<void> {
  const run = async (sql: string): Promise<unknown> => await join.connection.run(sql);
  const passes = await countPasses(join.connection, join.memoryBytes);
  const keys = key.map(({ sql }) => sql);
  const names = keys.map((_, index) => `k${index}`);
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

  await run(`CREATE OR REPLACE TEMP TABLE repeated AS SELECT ${names.join(", ")}, 0::BIGINT AS "in a", 0::BIGINT AS "in b"
    FROM ${rowsIn("a", 0)} LIMIT 0`);
  for (let pass = 0; pass < passes; pass += 1) {
    const [a, b] = [rowsIn("a", pass), rowsIn("b", pass)];
    if (!isNumbered) {
      const counted = (rows: string): string => `(SELECT ${names.join(", ")}, count(*) AS n
        FROM ${rows} AS r SEMI JOIN several ON ${equal("r", "several")} GROUP BY ALL)`;
      await run(`CREATE OR REPLACE TEMP TABLE several AS ${repeatedKeys(names, a)} UNION ${repeatedKeys(names, b)}`);
      await run(`INSERT INTO repeated
        SELECT ${names.map((name) => `several.${name}`).join(", ")}, coalesce(a.n, 0), coalesce(b.n, 0) FROM several
        LEFT JOIN ${counted(a)} AS a ON ${equal("a", "several")} LEFT JOIN ${counted(b)} AS b ON ${equal("b", "several")}`);
    }
    // Without the keys that repeat: a key that is 100,000 times in both would give 10^10 rows.
    const alone = isNumbered ? a : `(SELECT * FROM ${a} AS a ANTI JOIN several ON ${equal("a", "several")})`;
    await run(`${pass === 0 ? "CREATE OR REPLACE TEMP TABLE joined AS" : "INSERT INTO joined"}
      SELECT ${selected} FROM ${alone} AS a JOIN ${b} AS b ON ${equal("a", "b")}`);
  }
}

async function countRows(join: RowJoin, names: readonly string[]): Promise<Omit<MatchedRows, "changed">> {
  const [rowsA, rowsB, matched] = [await countOf(join, "a"), await countOf(join, "b"), await countOf(join, "joined")];
  const [counts = []] = await rowsOf(
    join,
    `SELECT count(*)::DOUBLE, (count(*) FILTER (WHERE "in a" <> "in b"))::DOUBLE,
       (sum("in a") FILTER (WHERE "in b" > 0))::DOUBLE, (sum("in b") FILTER (WHERE "in a" > 0))::DOUBLE FROM repeated`,
  );
  const [repeated = 0, uneven = 0, repeatedA = 0, repeatedB = 0] = counts.map(Number);
  const examples = await rowsOf(
    join,
    `SELECT concat_ws(', ', ${names.map((name) => `coalesce(left(${name}::VARCHAR, 60), 'NULL')`).join(", ")}),
       "in a"::DOUBLE, "in b"::DOUBLE FROM repeated ORDER BY abs("in a" - "in b") DESC, 1 LIMIT ${shownKeys}`,
  );
  return {
    rowsA,
    rowsB,
    onlyA: rowsA - matched - repeatedA,
    onlyB: rowsB - matched - repeatedB,
    matched,
    repeated,
    uneven,
    examples: examples.map(([text, one, other]) => ({ key: String(text), a: Number(one), b: Number(other) })),
  };
}

async function countOf(join: RowJoin, rows: string): Promise<number> {
  const [[count] = []] = await rowsOf(join, `SELECT count(*)::DOUBLE FROM ${rows}`);
  return Number(count);
}

/** Runs a query with few rows. */
export async function rowsOf({ connection }: Pick<RowJoin, "connection">, sql: string): Promise<unknown[][]> {
  return (await connection.runAndReadAll(sql)).getRows();
}

/** A column of the key of two tables, with the type that its values are compared as. */
interface KeyColumn {
  readonly name: string;
  /** SQL of its values in either table. */
  readonly sql: string;
  /** Its types, if the tables have it with two. */
  readonly differ?: readonly [a: string, b: string];
}

/**
 * Finds the types that the key columns of the tables `a` and `b` share. @throws JobError USAGE if values that differ would
 * be equal as values of such a type
 */
export async function sharedKey(connection: DuckDBConnection, key: readonly string[]): Promise<readonly KeyColumn[]> {
  const names = key.map(quoteName).join(", ");
  const columnTypes = async (sql: string): Promise<readonly DuckDBType[]> =>
    (await connection.run(`${sql} LIMIT 0`)).columnTypes();
  const ofA = await columnTypes(`SELECT ${names} FROM a`);
  const ofB = await columnTypes(`SELECT ${names} FROM b`);
  const shared = await columnTypes(`SELECT ${names} FROM a UNION ALL SELECT ${names} FROM b`);
  return key.map((name, index) => {
    const [a, b, both] = [ofA[index], ofB[index], shared[index]] as [DuckDBType, DuckDBType, DuckDBType];
    const sql = quoteName(name);
    if (String(a) === String(b)) {
      return { name, sql };
    }
    const column = { name, sql: `CAST(${sql} AS ${String(both)})`, differ: [String(a), String(b)] } as const;
    const reason = reasonAgainst(a, both) ?? reasonAgainst(b, both);
    if (reason !== undefined) {
      throw new JobError("USAGE", `comparing the rows: ${showTypes(column)}: ${reason}`, { hint });
    }
    return column;
  });
}

const hint = "compare tables or folders in which it has the same type, or name other columns with --key";

function showTypes({ name, differ: [a, b] = ["", ""] }: KeyColumn): string {
  return `key column ${name} is ${a} in A and ${b} in B`;
}

/** Why values of a type cannot be compared as those of another one; undefined: they can. */
function reasonAgainst(from: DuckDBType, to: DuckDBType): string | undefined {
  if (from instanceof DuckDBListType && to instanceof DuckDBListType) {
    return reasonAgainst(from.valueType, to.valueType);
  }
  if (from instanceof DuckDBStructType && to instanceof DuckDBStructType) {
    return from.entryTypes
      .map((type, index) => reasonAgainst(type, to.entryTypes[index] ?? type))
      .find((reason) => reason !== undefined);
  }
  if (isFloat(from) && to.typeId === DuckDBTypeId.VARCHAR) {
    return "equal numbers may have different texts";
  }
  const isRounded =
    isFloat(to) && !isFloat(from)
      ? (exactBits.get(from.typeId) ?? Number.POSITIVE_INFINITY) > (to.typeId === DuckDBTypeId.FLOAT ? 24 : 53)
      : to instanceof DuckDBDecimalType && scaleOf(from) > to.scale;
  return isRounded ? "keys that differ would be rounded to one" : undefined;
}

/** Bits of the integers of a type. */
const exactBits: ReadonlyMap<DuckDBTypeId, number> = new Map([
  [DuckDBTypeId.TINYINT, 8],
  [DuckDBTypeId.UTINYINT, 8],
  [DuckDBTypeId.SMALLINT, 16],
  [DuckDBTypeId.USMALLINT, 16],
  [DuckDBTypeId.INTEGER, 32],
  [DuckDBTypeId.UINTEGER, 32],
]);

function isFloat({ typeId }: DuckDBType): boolean {
  return typeId === DuckDBTypeId.FLOAT || typeId === DuckDBTypeId.DOUBLE;
}

function scaleOf(type: DuckDBType): number {
  return type instanceof DuckDBDecimalType ? type.scale : 0;
}

/** Runs `work` on keys. @throws JobError USAGE where a value of a key cannot be converted to the type that both share */
export async function convertingKeys<T>(columns: readonly KeyColumn[], work: () => Promise<T>): Promise<T> {
  const converted = columns.filter(({ differ }) => differ !== undefined);
  try {
    return await work();
  } catch (error) {
    const said = firstLine(messageOf(error));
    if (converted.length === 0 || !said.startsWith("Conversion Error")) {
      throw error;
    }
    const types = converted.map(showTypes).join(", ");
    throw new JobError("USAGE", `comparing the rows: ${types}: ${said}`, { hint, cause: error });
  }
}

/**
 * What is joined at once, in memory limits, of both tables together. DuckDB joins what does not fit in memory, but fails
 * where it is some twenty times as much.
 */
const limitsAtOnce = 4;

/** Returns in how many passes the tables of a DuckDB are joined, each over the keys with some of the hashes. */
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

/**
 * SQL for the keys that are several times among rows. Groups of hashes take less memory than groups of keys: keys are
 * grouped only where a hash is several times there.
 */
function repeatedKeys(keys: readonly string[], rows: string): string {
  const [list, hash] = [keys.join(", "), `hash(${keys.join(", ")})`];
  return `SELECT ${list} FROM ${rows} WHERE ${hash} IN (SELECT ${hash} FROM ${rows} GROUP BY ${hash} HAVING count(*) > 1)
    GROUP BY ${list} HAVING count(*) > 1`;
}
