import { z } from "../../util/zod.js";
import type { DuckDBConnection } from "../../duckdb/instance.js";
import { firstLine, quoteText } from "../../duckdb/sql.js";
import { JobError, messageOf } from "../../util/errors.js";
import { parseExactJson } from "./exact-json.js";
import { faultOfFunctions } from "./expression-functions.js";
import { isObject, type NamesInExpression, partsOf } from "./expression-parts.js";

const textLimit = 10_000;

/** What an expression may be. */
export const expressionHint =
  "an expression is computed for each row by itself: columns of the shard, constants, operators, CASE, casts, and functions that depend on their arguments alone";

/**
 * Parses `text` as DuckDB will and refuses all but one row-wise expression: no table, file, second statement or
 * subquery, no aggregate or window, no function that depends on more than its arguments.
 * @throws JobError SPEC_INVALID
 */
export async function checkExpression(connection: DuckDBConnection, text: string): Promise<NamesInExpression> {
  return await checkInside(connection, text, []);
}

/** `around`: definitions of the macros that this one is part of. */
async function checkInside(
  connection: DuckDBConnection,
  text: string,
  around: readonly string[],
): Promise<NamesInExpression> {
  const parts = partsOf(await parseExpression(connection, text));
  for (const part of parts.refused) {
    throw refused(text, `it has ${part}`);
  }
  // A macro that cannot be checked is refused, by its name.
  const checkMacro = async (definition: string): Promise<NamesInExpression | undefined> =>
    // A macro may call another of its own name, and that is itself among its definitions.
    around.includes(definition)
      ? undefined
      : await checkInside(connection, definition, [...around, definition]).catch(() => undefined);
  const fault = await faultOfFunctions(connection, parts.functions, checkMacro);
  if (fault !== undefined) {
    throw refused(text, fault);
  }
  return parts;
}

/**
 * Parses `text` as DuckDB will, and refuses what is not one expression. Returns the expression as DuckDB's JSON, by
 * `parseExactJson`. Its parts are not checked.
 * @throws JobError SPEC_INVALID
 */
export async function parseExpression(connection: DuckDBConnection, text: string): Promise<Record<string, unknown>> {
  if (text.length > textLimit) {
    throw refused(text, `it has more than ${textLimit} characters`);
  }
  if (text.includes("\0")) {
    throw refused(text.replaceAll("\0", "␀"), "it has a character of code 0");
  }
  const expression = onlyExpression(text, await parse(connection, text, `SELECT ${text}\n`));
  const wrapped = onlyExpression(text, await parse(connection, text, `SELECT (${text}\n)`));
  // The expression is put into parentheses later, so it must mean the same there.
  if (withoutPositions(expression) !== withoutPositions(wrapped)) {
    throw refused(text, "its parentheses do not match");
  }
  return expression;
}

function refused(text: string, found: string): JobError {
  const shown = text.length > 60 ? `${text.slice(0, 57)}…` : text;
  return new JobError("SPEC_INVALID", `checking the expression ${shown.replaceAll(/\s+/g, " ")}: ${found}`, {
    hint: expressionHint,
  });
}

const select = z.object({
  error: z.literal(false),
  statements: z.array(z.object({ node: z.record(z.string(), z.unknown()) })),
});
const failed = z.object({ error: z.literal(true), error_message: z.string() });

type Statements = z.output<typeof select>["statements"];

async function parse(connection: DuckDBConnection, text: string, sql: string): Promise<Statements> {
  let answer: unknown;
  try {
    const result = await connection.runAndReadAll(`SELECT json_serialize_sql(${quoteText(sql)})`);
    answer = parseExactJson(String(result.getRows()[0]?.[0]));
  } catch (error) {
    throw refused(text, firstLine(messageOf(error)));
  }
  const parsed = select.safeParse(answer);
  if (parsed.success) {
    return parsed.data.statements;
  }
  const error = failed.safeParse(answer);
  const said = error.success ? firstLine(error.data.error_message) : "it cannot be parsed";
  throw refused(text, said.startsWith("Only SELECT statements") ? "it is more than a SELECT" : said);
}

/** What else a SELECT can have, and how it looks when it has not. */
const clauses: readonly (readonly [key: string, what: string, isAbsent: (value: unknown) => boolean])[] = [
  ["from_table", "FROM", (value) => isObject(value) && value["type"] === "EMPTY"],
  ["where_clause", "WHERE", (value) => value === null],
  ["group_expressions", "GROUP BY", isEmptyList],
  ["having", "HAVING", (value) => value === null],
  ["qualify", "QUALIFY", (value) => value === null],
  ["sample", "USING SAMPLE", (value) => value === null],
  ["modifiers", "DISTINCT, ORDER BY or LIMIT", isEmptyList],
  ["cte_map", "WITH", (value) => isObject(value) && isEmptyList(value["map"])],
];

function isEmptyList(value: unknown): boolean {
  return Array.isArray(value) && value.length === 0;
}

/** The one expression of one SELECT that has nothing else. */
function onlyExpression(text: string, statements: Statements): Record<string, unknown> {
  const [statement, ...others] = statements;
  if (statement === undefined || others.length > 0) {
    throw refused(text, "it is more than one statement");
  }
  const { node } = statement;
  if (node["type"] !== "SELECT_NODE") {
    throw refused(text, "it is more than one SELECT");
  }
  for (const [key, what, isAbsent] of clauses) {
    if (!isAbsent(node[key])) {
      throw refused(text, `it has a ${what} clause`);
    }
  }
  const list: unknown = node["select_list"];
  const items: readonly unknown[] = Array.isArray(list) ? list : [];
  const [expression] = items;
  if (items.length !== 1 || !isObject(expression)) {
    throw refused(text, `it is a list of ${items.length} expressions`);
  }
  if (expression["alias"] !== "") {
    throw refused(text, `it ends with a name of its own, ${String(expression["alias"])}`);
  }
  return expression;
}

function withoutPositions(expression: unknown): string {
  return JSON.stringify(expression, (key, value: unknown) => (key === "query_location" ? undefined : value));
}
