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
 * @returns undefined where nanoseconds are inside of lists or structs, out of which functions may take them
 */
export async function withMicroseconds(
  connection: DuckDBConnection,
  text: string,
  columns: readonly SourceColumn[],
): Promise<string | undefined> {
  if (!columns.some(({ type }) => type !== undefined && hasNanos(type))) {
    return text;
  }
  const refs: MicroRef[] = [];
  let isNested = false;
  const micro = await microFunctions(connection);
  const walk = (value: unknown, inMicros: boolean): void => {
    if (Array.isArray(value)) {
      for (const one of value) {
        walk(one, inMicros);
      }
    } else if (isObject(value)) {
      const type = typeOf(value, columns);
      isNested ||= type !== undefined && type !== nanos && hasNanos(type);
      if (type === nanos && inMicros) {
        refs.push({ at: Number(value["query_location"]) - selectBytes, steps: namesOf(value).length });
      }
      const inner = takesMicros(value, micro) ?? inMicros;
      for (const one of Object.values(value)) {
        walk(one, inner);
      }
    }
  };
  walk(await parseExpression(connection, text), false);
  return isNested ? undefined : rewritten(text, refs);
}

/** Where an expression names a column, or a field by its path: a byte of the text, and the number of names. */
interface MicroRef {
  readonly at: number;
  readonly steps: number;
}

const nanos = "timestamp[ns]";
const selectBytes = "SELECT ".length;

/** Whether a part of an expression takes its arguments as microseconds; undefined: as the part around it does. */
function takesMicros(part: Record<string, unknown>, micro: ReadonlySet<string>): boolean | undefined {
  switch (part["class"]) {
    case "FUNCTION":
      return micro.has(String(part["function_name"]));
    case "CAST":
      return /"id":"(?:DATE|TIME|TIMESTAMP|TIMESTAMP_S|TIMESTAMP_MS|TIMESTAMP WITH TIME ZONE|TIME WITH TIME ZONE)"/.test(
        JSON.stringify(part["cast_type"]),
      );
    case "COMPARISON":
    case "BETWEEN":
      return false;
    default:
      return undefined;
  }
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

/** The type of the column, or of the field, that a part of an expression names. */
function typeOf(part: Record<string, unknown>, columns: readonly SourceColumn[]): ColumnType | undefined {
  const [first, ...fields] = namesOf(part).map((name) => String(name).toLowerCase());
  let found: Pick<SourceColumn, "type" | "fields"> | undefined = columns.find(
    ({ name }) => name.toLowerCase() === first,
  );
  for (const field of fields) {
    const { type, fields: some = [] }: Pick<SourceColumn, "type" | "fields"> = found ?? { type: undefined };
    const inside = typeof type === "object" && type.kind === "struct" ? type.fields : some;
    found = inside.find(({ name }) => name.toLowerCase() === field);
  }
  return found?.type;
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

function rewritten(text: string, refs: readonly MicroRef[]): string {
  let bytes = Buffer.from(text);
  for (const { at, steps } of refs.toSorted((one, other) => other.at - one.at)) {
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
