import { type AggregateName, aggregateNames } from "../../checks/profile/profile.js";
import type { DuckDBConnection } from "../../duckdb/instance.js";
import { quoteText } from "../../duckdb/sql.js";
import { JobError } from "../../util/errors.js";
import { checkExpression, parseExpression } from "./check-expression.js";
import { exactJson } from "./exact-json.js";
import { isObject } from "./expression-parts.js";

/** An aggregate of a condition. */
export interface Aggregate {
  readonly name: AggregateName;
  /** SQL of its argument, which is checked; undefined for `count(*)`. */
  readonly argument: string | undefined;
}

/** A condition of aggregates. */
export interface Condition {
  readonly aggregates: readonly Aggregate[];
  /** SQL of the condition, which is checked; the value of aggregate i is in column `aggregateColumn(i)`. */
  readonly condition: string;
  /** The output columns that the arguments use. */
  readonly columns: ReadonlySet<string>;
}

const columnPrefix = "infer_batch_aggregate_";

export function aggregateColumn(index: number): string {
  return `${columnPrefix}${index}`;
}

/** Removes the columns that replace aggregates from an error message. */
export function withoutAggregateColumns(message: string): string {
  return message.replaceAll(new RegExp(`${columnPrefix}\\d+`, "g"), "…");
}

/**
 * Splits a condition into its aggregates and the expression over their values. The SQL that it returns has passed the
 * check of expressions.
 * @throws JobError SPEC_INVALID
 */
export async function parseCondition(connection: DuckDBConnection, text: string): Promise<Condition> {
  if (text.toLowerCase().includes(columnPrefix)) {
    throw new JobError("SPEC_INVALID", `names that begin with ${columnPrefix} are reserved`);
  }
  const found: { name: AggregateName; argument: unknown }[] = [];
  const outer = withoutAggregates(await parseExpression(connection, text), (name, argument) => {
    found.push({ name, argument });
    return aggregateColumn(found.length - 1);
  });
  const condition = await sqlOf(connection, outer);
  const outside = await checkExpression(connection, condition);
  const own = new Set(found.map((_, index) => aggregateColumn(index)));
  const loose = [...outside.columns].find((column) => !own.has(column));
  if (loose !== undefined || found.length === 0) {
    throw new JobError(
      "SPEC_INVALID",
      loose === undefined
        ? "it has no aggregate"
        : `\`${loose}\` is not inside count, sum, avg, min or max, so it has no single value`,
      { hint: "write a condition such as avg(case when score > 0.5 then 1 else 0 end) between 0.05 and 0.2" },
    );
  }
  const aggregates: Aggregate[] = [];
  const columns = new Set<string>();
  for (const { name, argument } of found) {
    const sql = argument === undefined ? undefined : await sqlOf(connection, argument);
    for (const column of sql === undefined ? [] : (await checkExpression(connection, sql)).columns) {
      columns.add(column);
    }
    aggregates.push({ name, argument: sql });
  }
  return { aggregates, condition, columns };
}

/** Replaces each aggregate of a parsed expression by a column. @param take returns the name of the column */
function withoutAggregates(part: unknown, take: (name: AggregateName, argument: unknown) => string): unknown {
  if (Array.isArray(part)) {
    return part.map((one) => withoutAggregates(one, take));
  }
  if (!isObject(part)) {
    return part;
  }
  const name = aggregateName(part);
  if (name === undefined) {
    return Object.fromEntries(Object.entries(part).map(([key, value]) => [key, withoutAggregates(value, take)]));
  }
  const column = take(name, plainArgument(part, name));
  return { class: "COLUMN_REF", type: "COLUMN_REF", alias: "", query_location: 0, column_names: [column] };
}

function aggregateName({
  class: kind,
  function_name: called,
  schema,
}: Record<string, unknown>): AggregateName | undefined {
  const plain = called === "count_star" ? "count" : called;
  return kind === "FUNCTION" && (schema === "" || schema === "main")
    ? aggregateNames.find((name) => name === plain)
    : undefined;
}

/** The argument of an aggregate; undefined where it counts rows. @throws JobError SPEC_INVALID */
function plainArgument(part: Record<string, unknown>, name: AggregateName): unknown {
  const { children, distinct, filter, order_bys: order } = part;
  const orders: unknown = isObject(order) ? order["orders"] : [];
  const given: readonly unknown[] = Array.isArray(children) ? children : [];
  const found =
    distinct !== false
      ? "DISTINCT"
      : filter !== null
        ? "FILTER"
        : Array.isArray(orders) && orders.length > 0
          ? "ORDER BY"
          : given.length > 1
            ? "more than one argument"
            : undefined;
  if (found !== undefined) {
    throw new JobError("SPEC_INVALID", `\`${name}\` has ${found}, which checks.sql does not support`, {
      hint: "write case when … then … end in place of FILTER; checks.unique finds keys that repeat",
    });
  }
  return given[0];
}

/** The SQL of a part of a parsed expression. */
async function sqlOf(connection: DuckDBConnection, part: unknown): Promise<string> {
  const node = {
    type: "SELECT_NODE",
    modifiers: [],
    cte_map: { map: [] },
    select_list: [part],
    from_table: { type: "EMPTY", alias: "", sample: null, query_location: 0 },
    where_clause: null,
    group_expressions: [],
    group_sets: [],
    aggregate_handling: "STANDARD_HANDLING",
    having: null,
    sample: null,
    qualify: null,
  };
  const json = exactJson({ error: false, statements: [{ node, named_param_map: [] }] });
  const answer = await connection.runAndReadAll(`SELECT json_deserialize_sql(${quoteText(json)})`);
  return String(answer.getRows()[0]?.[0]).replace(/^SELECT /, "");
}
