import type { ColumnType, SourceColumn } from "../../columnar/types.js";
import type { DuckDBConnection } from "../../duckdb/instance.js";
import { quoteText } from "../../duckdb/sql.js";
import { assertNever } from "../../util/errors.js";
import { parseExpression } from "./check-expression.js";
import { isObject } from "./expression-parts.js";

/**
 * Rewrites an expression so that DuckDB computes with the right microseconds. Most of its functions take nanoseconds as
 * microseconds, and so do casts to dates and times: it then cuts towards 1970, and takes the first and the last
 * nanosecond for infinite. They are given microseconds that are rounded down; what takes nanoseconds as they are, such as
 * `epoch_ns` and comparisons, is given these.
 * @returns undefined where nanoseconds are in another place, out of which functions may take them
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
