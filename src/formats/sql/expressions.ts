import type { DuckDBDataChunk, DuckDBType } from "@duckdb/node-api";
import type { ColumnType, SourceColumn } from "../../columnar/types.js";
import type { ConnectionPool, DuckDBConnection } from "../../duckdb/instance.js";
import type { BoundExpression, Decoder, ShardFile } from "../port.js";
import { firstLine, quoteName, quoteText } from "../../duckdb/sql.js";
import { JobError, assertNever, messageOf } from "../../util/errors.js";
import {
  type NamesInExpression,
  checkExpression,
  isObject,
  isZonedTime,
  parseExpression,
  sessionValues,
} from "./check-expression.js";
import { type Contract, folderColumns } from "../../binding/contract.js";
import { columnTypeOf, readColumn } from "../../duckdb/vectors.js";
import { didYouMean } from "../../util/suggest.js";
import {
  columnSql,
  expressionAlias,
  expressionQuery,
  fromRows,
  isReservedName,
  rowNumberColumn,
  rowsTable,
  someRows,
} from "./slice-sql.js";
import { exactText, jsonOf } from "../../columnar/value-text.js";

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

/**
 * Rewrites an expression so that DuckDB computes with the right microseconds. Most of its functions take nanoseconds as
 * microseconds, and so do casts to dates and times: it then cuts towards 1970, and takes the first and the last
 * nanosecond for infinite. They are given microseconds that are rounded down; what takes nanoseconds as they are, such as
 * `epoch_ns` and comparisons, is given these.
 * @returns undefined where nanoseconds are in another place, out of which functions may take them
 * @public so that tests see it
 */
export async function withMicroseconds(
  connection: DuckDBConnection,
  text: string,
  columns: readonly SourceColumn[],
): Promise<string | undefined> {
  if (!columns.some(holdsNanos) && !makesNanos.test(text)) {
    return text;
  }
  // By place, since an operand of CASE is there once for each WHEN.
  const refs = new Map<number, number>();
  let isRefused = false;
  const micro = await microFunctions(connection);
  const walk = (value: unknown, taken: Taken): void => {
    if (Array.isArray(value)) {
      for (const one of value) {
        walk(one, taken);
      }
    } else if (isObject(value)) {
      const column = columnOf(value, columns);
      if (column?.type === nanos && taken === "micros") {
        refs.set(Number(value["query_location"]) - selectBytes, namesOf(value).length);
      } else if (isNanos(value) || (column !== undefined && holdsNanos(column))) {
        const isWhole = column !== undefined && column.type !== nanos;
        isRefused ||= taken !== "any" && (taken !== "exact" || isWhole);
      }
      const inner = takenBy(value, taken, micro);
      for (const one of Object.values(value)) {
        walk(one, inner);
      }
    }
  };
  walk(await parseExpression(connection, text), "exact");
  return isRefused ? undefined : rewritten(text, refs);
}

/**
 * How a part of an expression takes nanoseconds: as microseconds, as they are, or without a look at them, so that they
 * may be inside of lists and structs. All else is refused.
 */
type Taken = "micros" | "exact" | "any" | "refused";

const nanos = "timestamp[ns]";
const selectBytes = "SELECT ".length;

/** What the text of an expression has if it makes nanoseconds of other values. */
const makesNanos = /timestamp_ns|timestamp\s*\(|%n/i;

/** The first three have a form for nanoseconds; the others take them as text. */
const exactFunctions = new Set(
  "epoch_ns nanosecond strftime || concat concat_ws format printf to_json json_object json_array".split(" "),
);
const anyFunctions = new Set(["typeof", "len", "length", "array_length", "cardinality"]);

function takenBy(part: Record<string, unknown>, around: Taken, micro: ReadonlySet<string>): Taken {
  switch (part["class"]) {
    case undefined: // a list of parts
    case "CASE":
    case "CONJUNCTION":
      return around;
    case "FUNCTION":
      return takenByFunction(String(part["function_name"]).toLowerCase(), around, micro);
    case "CAST":
      return takenByCast(castId(part));
    case "COMPARISON":
    case "BETWEEN":
      return "exact";
    case "OPERATOR":
      return takenByOperator(String(part["type"]), around);
    default:
      return "refused";
  }
}

function takenByFunction(name: string, around: Taken, micro: ReadonlySet<string>): Taken {
  if (name === "greatest" || name === "least" || (name === "nullif" && around !== "micros")) {
    return around;
  }
  return micro.has(name) ? "micros" : exactFunctions.has(name) ? "exact" : anyFunctions.has(name) ? "any" : "refused";
}

function takenByCast(id: string): Taken {
  if (/^(?:DATE|TIME|TIMESTAMP|TIMESTAMP_S|TIMESTAMP_MS|TIMESTAMP WITH TIME ZONE)$/.test(id)) {
    return "micros";
  }
  return ["TIMESTAMP_NS", "TIME_NS", "VARCHAR"].includes(id) ? "exact" : "refused";
}

function takenByOperator(type: string, around: Taken): Taken {
  switch (type) {
    case "OPERATOR_IS_NULL":
    case "OPERATOR_IS_NOT_NULL":
      return "any";
    case "COMPARE_IN":
    case "COMPARE_NOT_IN":
      return "exact";
    case "OPERATOR_COALESCE":
    case "OPERATOR_NOT":
    case "OPERATOR_TRY":
      return around;
    default:
      return "refused";
  }
}

/** Whether a part of an expression makes nanoseconds. */
function isNanos(part: Record<string, unknown>): boolean {
  const name = String(part["function_name"]).toLowerCase();
  return (
    castId(part) === "TIMESTAMP_NS" ||
    name === "make_timestamp_ns" ||
    (/^(?:try_)?strptime$/.test(name) && JSON.stringify(part).includes("%n"))
  );
}

function castId(part: Record<string, unknown>): string {
  const type = part["class"] === "CAST" ? part["cast_type"] : undefined;
  return isObject(type) ? String(type["id"]) : "";
}

/** Functions of microseconds that have no form for nanoseconds. */
async function microFunctions(connection: DuckDBConnection): Promise<ReadonlySet<string>> {
  const found = await connection.runAndReadAll(
    `SELECT function_name, list_distinct(flatten(list(parameter_types))) AS types FROM duckdb_functions()
     WHERE function_type = 'scalar' GROUP BY 1
     HAVING list_contains(types, 'TIMESTAMP') AND NOT list_has_any(types, ['TIMESTAMP_NS', 'ANY', 'T'])`,
  );
  return new Set([...found.getRows().map(([name]) => String(name)), "date_add"]);
}

function namesOf(part: Record<string, unknown>): readonly unknown[] {
  const names = part["class"] === "COLUMN_REF" ? part["column_names"] : undefined;
  return Array.isArray(names) ? names : [];
}

/** The column, or the field, that a part of an expression names; the last known one on the way to it. */
function columnOf(part: Record<string, unknown>, columns: readonly SourceColumn[]): SourceColumn | undefined {
  const [first, ...fields] = namesOf(part).map((name) => String(name).toLowerCase());
  let found = columns.find(({ name }) => name.toLowerCase() === first);
  for (const field of fields) {
    found = found && (fieldsOf(found).find(({ name }) => name.toLowerCase() === field) ?? found);
  }
  return found;
}

function fieldsOf({ type, fields = [] }: SourceColumn): readonly SourceColumn[] {
  return typeof type === "object" && type.kind === "struct"
    ? type.fields.map((field) => ({ ...field, sourceType: "" }))
    : fields;
}

/** Whether a column is, or has inside, nanoseconds; also in a type that is not supported. */
function holdsNanos({ type, sourceType }: SourceColumn): boolean {
  return type === undefined ? /timestamp(?:_ns|\[ns)/i.test(sourceType) : hasNanos(type);
}

function hasNanos(type: ColumnType): boolean {
  if (typeof type === "string") {
    return type === nanos;
  }
  switch (type.kind) {
    case "decimal":
      return false;
    case "list":
      return hasNanos(type.element);
    case "struct":
      return type.fields.some((field) => hasNanos(field.type));
    default:
      return assertNever(type);
  }
}

const step = String.raw`(?:"(?:[^"]|"")*"|[\p{L}_][\p{L}\p{N}_$]*)`;

/** `refs`: the bytes at which the text names a column, or a field by its path, each with the number of names. */
function rewritten(text: string, refs: ReadonlyMap<number, number>): string {
  let bytes = Buffer.from(text);
  for (const [at, steps] of [...refs].toSorted(([one], [other]) => other - one)) {
    const rest = bytes.subarray(at).toString();
    const [name] = new RegExp(`^${step}(?:\\s*\\.\\s*${step}){${steps - 1}}`, "u").exec(rest) ?? [];
    if (name === undefined) {
      throw new Error(`${quoteText(text)} names no column at byte ${at}`);
    }
    const ns = `epoch_ns(${name})`;
    const micros = `make_timestamp(${ns} // 1000 - CASE WHEN ${ns} % 1000 < 0 THEN 1 ELSE 0 END)`;
    bytes = Buffer.concat([bytes.subarray(0, at), Buffer.from(micros + rest.slice(name.length))]);
  }
  return bytes.toString();
}

/** Checks expressions before their text becomes part of any SQL, each once. */
interface ExpressionCheck {
  /** @throws JobError SPEC_INVALID */
  one(text: string): Promise<NamesInExpression>;
  all(expressions: Contract["expressions"]): Promise<void>;
}

export function createExpressionCheck(pool: ConnectionPool): ExpressionCheck {
  const checked = new Map<string, Promise<NamesInExpression>>();
  const one = (text: string): Promise<NamesInExpression> => {
    const known = checked.get(text) ?? pool.use((connection) => checkExpression(connection, text));
    checked.set(text, known);
    return known;
  };
  return {
    one,
    async all(expressions) {
      for (const { text } of expressions?.list ?? []) {
        await one(text);
      }
    },
  };
}

export async function bindExpression(
  tables: ShardTables,
  check: ExpressionCheck,
  { file, text, columns, partitions }: Parameters<Decoder["bindExpression"]>[0],
): Promise<BoundExpression> {
  const names = await check.one(text);
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
      const exact = await withMicroseconds(connection, text, used);
      if (exact === undefined) {
        throw invalid(
          text,
          "it uses timestamps in nanoseconds where DuckDB may cut them",
          "give them to functions of dates and times alone, a field by its path, as in event.at; elsewhere cast them first, such as at::TIMESTAMP, or carry the column",
        );
      }
      const rows = rowsTable({ table: shard, folders, partitions }, `${rowNumberColumn} < 0`);
      // Without the row's number, which is no column of the shard; an expression may need none, and SQL needs one.
      const table = `(SELECT NULL AS ${quoteName(expressionAlias(""))}, * EXCLUDE (${rowNumberColumn}) FROM ${rows})`;
      const result = await connection.run(`${expressionQuery(table, `(${exact}\n)`)} LIMIT 0`);
      const [type] = result.columnTypes();
      return {
        text: exact,
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

export async function describeFailure(
  tables: ShardTables,
  check: ExpressionCheck,
  { file, rows, expressions, expression, partitions }: Parameters<Decoder["describeFailure"]>[0],
): Promise<string> {
  await check.one(expression.text);
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

/** Reads values of some rows as texts, from a shard of any format. */
export async function describeRows(
  tables: ShardTables,
  check: ExpressionCheck,
  request: Parameters<Decoder["describeRows"]>[0],
): ReturnType<Decoder["describeRows"]> {
  const { file, rows, columns, partitions, expressions } = request;
  await check.all(expressions);
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
    const selected = [rowNumberColumn, ...texts, ...values].join(", ");
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
