import { quoteName } from "../../base/sql.js";
import type { Column, ColumnType, SourceColumn } from "../../columns/types.js";
import type { DuckDBConnection, ConnectionPool } from "../../duckdb/instance.js";
import type { ShardFile, BoundExpression, Decoder, ShardQuestions, SliceRequest } from "../format.js";
import { firstLine } from "../../duckdb/sql.js";
import { JobError, messageOf } from "../../base/errors.js";
import {
  checkExpression,
  conjunctsOf,
  isZonedTime,
  type NamesInExpression,
  sessionValues,
} from "./check-expression.js";
import { type Contract, folderColumns } from "../../models/binding/contract.js";
import { columnTypeOf, readColumn } from "../../duckdb/vectors.js";
import { didYouMean } from "../../base/suggest.js";
import {
  expressionAlias,
  expressionQuery,
  isReservedName,
  fileRowNumber,
  rowsTable,
  someRows,
  columnSql,
  fromRows,
} from "./slice-sql.js";
import type { DuckDBDataChunk, DuckDBType } from "@duckdb/node-api";
import { exactText, jsonOf } from "../../columns/value-text.js";

/** Rows of a shard as a table of DuckDB, for a shard of any format. */
export interface ShardTables {
  /**
   * `table` has `rowNumberColumn` and at least these rows and columns, during `work`. A column's type is given where it
   * is known.
   */
  use<T>(
    file: ShardFile,
    wanted: { readonly rows: readonly number[]; readonly columns: readonly WantedColumn[] },
    work: (connection: DuckDBConnection, table: string) => Promise<T>,
  ): Promise<T>;
}

export interface WantedColumn {
  readonly name: string;
  readonly type?: ColumnType | undefined;
}

/** What DuckDB does of shards in any format. */
export interface ShardSql extends ShardQuestions {
  /** Checks expressions before their text becomes part of any SQL, each once. @throws JobError SPEC_INVALID */
  check(expressions: Contract["expressions"]): Promise<void>;
  /** Values from folder names, as columns of so many rows, up to 2,048. */
  constants(slice: SliceRequest, rows: number): Promise<ReadonlyMap<string, Column>>;
}

export function shardSql(pool: ConnectionPool, tables: ShardTables): ShardSql {
  const checked = new Map<string, Promise<NamesInExpression>>();
  const checkText = (text: string): Promise<NamesInExpression> => {
    const known = checked.get(text) ?? pool.use((connection) => checkExpression(connection, text));
    checked.set(text, known);
    return known;
  };
  const check = async (expressions: Contract["expressions"]): Promise<void> => {
    for (const { text } of expressions?.list ?? []) {
      await checkText(text);
    }
  };
  return {
    check,
    constants: (slice, rows) => folderConstants(pool, slice, rows),
    bindExpression: async (request) => await bindExpression(tables, await checkText(request.text), request),
    async mayKeep(request) {
      await checkText(request.text);
      return await pool.use((connection) => mayKeep(connection, request));
    },
    async describeRows(request) {
      await check(request.expressions);
      return await describeRows(tables, request);
    },
    async describeFailure(request) {
      await checkText(request.expression.text);
      return await describeFailure(tables, request);
    },
  };
}

async function folderConstants(
  pool: ConnectionPool,
  { projection, partitions }: SliceRequest,
  rows: number,
): Promise<ReadonlyMap<string, Column>> {
  const refs = projection.passthrough.flatMap(({ source }) => (source.partition === true ? [source] : []));
  if (refs.length === 0) {
    return new Map();
  }
  const sql = refs.map((ref) => columnSql(ref, partitions)).join(", ");
  const chunk = await pool.use(async (connection) => {
    const result = await connection.run(`SELECT ${sql} FROM range(${rows})`);
    return await result.fetchChunk();
  });
  if (chunk?.rowCount !== rows) {
    throw new Error(`DuckDB gave ${chunk?.rowCount} rows of constants`);
  }
  return new Map(refs.map((ref, index) => [ref.path[0] ?? "", readColumn(chunk, index, ref.type)]));
}

async function bindExpression(
  tables: ShardTables,
  names: NamesInExpression,
  { file, text, columns, partitions }: Parameters<Decoder["bindExpression"]>[0],
): Promise<BoundExpression> {
  refuseReserved(text, columns);
  const maybe = columns.filter(({ name }) => names.parameters.has(name) && !names.columns.has(name));
  const used = [...[...names.columns].map((name) => findColumn(name, { text, columns })), ...maybe];
  for (const { name, sourceType } of used) {
    if (isZonedTime(sourceType)) {
      throw invalid(
        text,
        `column \`${name}\` is ${sourceType}`,
        "DuckDB's result for it may depend on the day of the run; it can only be carried",
      );
    }
  }
  const folders = folderColumns(used);
  const inFile = used.filter(({ partition }) => partition !== true);
  try {
    return await tables.use(file, { rows: [], columns: inFile }, async (connection, shard) => {
      const rows = rowsTable({ table: shard, folders, partitions }, `${fileRowNumber} < 0`);
      // Without the row's number, which is no column of the shard; an expression may need none, and SQL needs one.
      const table = `(SELECT NULL AS ${quoteName(expressionAlias(""))}, * EXCLUDE (${fileRowNumber}) FROM ${rows})`;
      const result = await connection.run(`${expressionQuery(table, `(${text}\n)`)} LIMIT 0`);
      const [type] = result.columnTypes();
      return {
        uses: used.map(({ name }) => name),
        sourceType: String(type),
        type: type === undefined ? undefined : columnTypeOf(type),
      };
    });
  } catch (error) {
    if (error instanceof JobError) {
      throw error;
    }
    throw invalid(text, firstLine(messageOf(error)), "compare it with the columns that `infer-batch inspect` shows");
  }
}

/** DuckDB compares names without regard to case. */
function findColumn(name: string, { text, columns }: { text: string; columns: readonly SourceColumn[] }): SourceColumn {
  const found = columns.find((column) => column.name.toLowerCase() === name.toLowerCase());
  if (found === undefined && sessionValues.has(name.toLowerCase())) {
    throw invalid(
      text,
      `\`${name}\` does not depend on the row alone`,
      "the date of the run is a param: ds: ${today}, and ${ds} in the expression",
    );
  }
  if (found === undefined) {
    const names = columns.map((column) => column.name);
    throw invalid(
      text,
      `the shard has no column \`${name}\`${didYouMean(name, names)}`,
      "expressions see the shard's columns and those of its folder names, not each other",
    );
  }
  if (found.type === undefined && found.sourceType.startsWith("DECIMAL")) {
    throw invalid(
      text,
      `column \`${found.name}\` is ${found.sourceType}, of more than 38 digits`,
      "store it otherwise",
    );
  }
  return found;
}

/** Names that the SQL around expressions needs for itself. */
function refuseReserved(text: string, columns: readonly SourceColumn[]): void {
  const reserved = columns.find(({ name }) => isReservedName(name));
  if (reserved !== undefined) {
    throw invalid(
      text,
      `the shard has a column \`${reserved.name}\`, a name that expressions need for themselves`,
      "rename it, or do without input.where and input.columns",
    );
  }
}

function invalid(text: string, found: string, hint: string): JobError {
  return new JobError("SPEC_INVALID", `binding the expression ${text.trim().replaceAll(/\s+/g, " ")}: ${found}`, {
    hint,
  });
}

const partitionsPerQuery = 256;

async function mayKeep(
  connection: DuckDBConnection,
  { text, columns, partitions }: Parameters<Decoder["mayKeep"]>[0],
): Promise<boolean[]> {
  const known = new Set(columns.map(({ name }) => name.toLowerCase()));
  const decided = (await conjunctsOf(connection, text)).filter(
    ({ columns: names }) => names !== undefined && [...names].every((name) => known.has(name.toLowerCase())),
  );
  if (decided.length === 0) {
    return partitions.map(() => true);
  }
  // One that fails decides nothing.
  const conditions = decided.map(({ sql }) => {
    const result = `TRY(struct_pack(v := (${sql})))`;
    return `CASE WHEN ${result} IS NULL THEN true ELSE (${result}).v IS TRUE END`;
  });
  const answers: boolean[] = [];
  for (let start = 0; start < partitions.length; start += partitionsPerQuery) {
    const rows = partitions.slice(start, start + partitionsPerQuery).map((values, index) => {
      const constants = folderColumns(columns).map((ref) => `${columnSql(ref, values)} AS ${quoteName(ref.name)}`);
      return `SELECT ${[`${index} AS ${quoteName(expressionAlias(""))}`, ...constants].join(", ")}`;
    });
    const read = await connection.runAndReadAll(
      `SELECT ${conditions.join(" AND ")} FROM (${rows.join(" UNION ALL ")}) ORDER BY ${quoteName(expressionAlias(""))}`,
    );
    answers.push(...read.getRows().map(([value]) => value === true));
  }
  return answers;
}

async function describeFailure(
  tables: ShardTables,
  { file, rows, expressions, expression, partitions }: Parameters<Decoder["describeFailure"]>[0],
): Promise<string> {
  const folders = expressions?.folders ?? [];
  const [row = 0] = rows;
  const columns = expression.uses.flatMap((name) => (folders.some((ref) => ref.name === name) ? [] : [{ name }]));
  try {
    await tables.use(file, { rows: [row], columns }, async (connection, shard) => {
      const table = rowsTable({ table: shard, folders, partitions }, someRows([row]));
      await connection.run(expressionQuery(table, `(${expression.text}\n)`));
    });
    return "it fails";
  } catch (error) {
    if (error instanceof JobError) {
      throw error;
    }
    return firstLine(messageOf(error));
  }
}

async function describeRows(
  tables: ShardTables,
  request: Parameters<Decoder["describeRows"]>[0],
): ReturnType<Decoder["describeRows"]> {
  const { file, rows, columns, partitions, expressions } = request;
  const values = columns.map((column) => columnSql(column, partitions));
  // NULL for what DuckDB cannot write as text; the values themselves come behind the texts.
  const texts = values.map((value) => `CASE WHEN NOT ${hasTimes(value)} THEN TRY(CAST(${value} AS VARCHAR)) END`);
  const folders = expressions?.folders.map(({ name }) => name) ?? [];
  const uses = expressions?.list.flatMap((expression) => expression.uses) ?? [];
  const wanted = new Map<string, ColumnType | undefined>();
  for (const { path, type, partition, computed } of columns) {
    if (partition !== true && computed !== true) {
      wanted.set(path[0] ?? "", path.length === 1 ? type : undefined);
    }
  }
  for (const name of uses) {
    if (!folders.includes(name) && !wanted.has(name)) {
      wanted.set(name, undefined);
    }
  }
  const read = Array.from(wanted, ([name, type]) => ({ name, type }));
  return await tables.use(file, { rows, columns: read }, async (connection, table) => {
    const selected = [fileRowNumber, ...texts, ...values].join(", ");
    const result = await connection.run(
      `SELECT ${selected} ${fromRows({ table, expressions, partitions }, someRows(rows))}`,
    );
    const types = result.columnTypes();
    const described = new Map<number, (string | null)[]>();
    for (const chunk of await result.fetchAllChunks()) {
      for (let row = 0; row < chunk.rowCount; row += 1) {
        const shown = columns.map((_, index) => {
          const [text, value] = [index + 1, index + 1 + columns.length];
          const found = chunk.getColumnVector(text).getItem(row);
          const type = types[value];
          const isShown = typeof found === "string" && !(found.includes("infinity") && isOfNanos(type));
          return isShown ? found : ownText(chunk, value, { type, row });
        });
        described.set(Number(chunk.getColumnVector(0).getItem(row)), shown);
      }
    }
    return described;
  });
}

/** Whether a type has times of day in it: DuckDB ends the process where it writes one below 0 or above 24 hours. */
function hasTimes(value: string): string {
  return `regexp_matches(replace(typeof(${value}), 'WITH TIME ZONE', ''), '\\bTIME(_NS)?\\b')`;
}

/** DuckDB calls the first and the last nanosecond infinite. */
function isOfNanos(type: DuckDBType | undefined): boolean {
  return String(type).includes("TIMESTAMP_NS");
}

/** A value that DuckDB does not show; null for NULL. */
function ownText(
  chunk: DuckDBDataChunk,
  column: number,
  { type, row }: { readonly type: DuckDBType | undefined; readonly row: number },
): string | null {
  if (chunk.getColumnVector(column).getItem(row) === null) {
    return null;
  }
  const known = type === undefined ? undefined : columnTypeOf(type);
  if (known === undefined) {
    return `a ${String(type)}`;
  }
  const values = readColumn(chunk, column, known);
  return exactText(known, values, row) ?? jsonOf(known, values, row);
}
