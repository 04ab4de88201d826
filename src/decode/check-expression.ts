import { z } from "zod";
import { type DuckDBConnection, firstLine, quoteText } from "../duckdb/instance.js";
import { JobError, messageOf } from "../errors.js";
import { didYouMean } from "../suggest.js";
import { parseJson } from "../plan/parse-plan.js";

const textLimit = 10_000;

/** Functions that DuckDB calls CONSISTENT though they look at a clock, a setting or a variable. */
const readers: ReadonlySet<string> = new Set([
  "current_localtime",
  "current_localtimestamp",
  "current_setting",
  "getvariable",
  "version",
]);

/** Parts of an expression that see one row and nothing else; `FUNCTION` is looked at by name. */
const rowWise: ReadonlySet<string> = new Set([
  "BETWEEN",
  "CASE",
  "CAST",
  "COLLATE",
  "COLUMN_REF",
  "COMPARISON",
  "CONJUNCTION",
  "CONSTANT",
  "FUNCTION",
  "LAMBDA",
  "OPERATOR",
]);

const refusedParts: Readonly<Record<string, string>> = {
  SUBQUERY: "a subquery",
  WINDOW: "a window function",
  STAR: "a `*`",
  PARAMETER: "a placeholder for a value",
  POSITIONAL_REFERENCE: "a column by its number",
  DEFAULT: "the word DEFAULT",
};

/**
 * Parses `text` as DuckDB will and refuses all but one row-wise expression: no table, file, second statement or
 * subquery, no aggregate or window, no function that depends on more than its arguments.
 * @throws JobError SPEC_INVALID
 */
export async function checkExpression(connection: DuckDBConnection, text: string): Promise<NamesInExpression> {
  if (text.length > textLimit) {
    throw refused(text, `it has more than ${textLimit} characters`);
  }
  const expression = onlyExpression(text, await parse(connection, text, `SELECT ${text}\n`));
  const wrapped = onlyExpression(text, await parse(connection, text, `SELECT (${text}\n)`));
  // What stands inside parentheses later must mean there what it means on its own.
  if (withoutPlaces(expression) !== withoutPlaces(wrapped)) {
    throw refused(text, "its parentheses do not match");
  }
  const parts = partsOf(expression);
  for (const part of parts.others) {
    throw refused(text, `it has ${refusedParts[part] ?? `a part (${part})`}`);
  }
  await checkFunctions(connection, text, parts.functions);
  return parts;
}

/** By the first part of each name. */
export interface NamesInExpression {
  readonly columns: ReadonlySet<string>;
  /** Of lambdas; in the old arrow form they may as well be columns (`a -> 'key'`). */
  readonly parameters: ReadonlySet<string>;
}

function refused(text: string, found: string): JobError {
  const shown = text.length > 60 ? `${text.slice(0, 57)}…` : text;
  return new JobError("SPEC_INVALID", `checking the expression ${shown.replaceAll(/\s+/g, " ")}: ${found}`, {
    hint: "an expression is computed for each row by itself: columns of the shard, constants, operators, CASE, casts, and functions that depend on their arguments alone",
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
    answer = parseJson(String(result.getRows()[0]?.[0]));
  } catch (error) {
    throw refused(text, firstLine(messageOf(error)));
  }
  const parsed = select.safeParse(answer);
  if (parsed.success) {
    return parsed.data.statements;
  }
  const error = failed.safeParse(answer);
  throw refused(text, error.success ? firstLine(error.data.error_message) : "it cannot be parsed");
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

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
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

function withoutPlaces(expression: unknown): string {
  return JSON.stringify(expression, (key, value: unknown) => (key === "query_location" ? undefined : value));
}

interface Parts extends NamesInExpression {
  readonly columns: Set<string>;
  readonly parameters: Set<string>;
  /** Name, and number of arguments. */
  readonly functions: Map<string, number>;
  /** Kinds of parts that are refused. */
  readonly others: Set<string>;
}

/** All parts of a parsed expression, as DuckDB's JSON tells them: objects with a `class`. */
function partsOf(expression: unknown): Parts {
  const parts: Parts = { columns: new Set(), parameters: new Set(), functions: new Map(), others: new Set() };
  const walk = (value: unknown, bound: ReadonlySet<string>): void => {
    if (Array.isArray(value)) {
      for (const one of value) {
        walk(one, bound);
      }
    } else if (isObject(value)) {
      const inner = visit(parts, value, bound);
      for (const one of Object.values(value)) {
        walk(one, inner);
      }
    }
  };
  walk(expression, new Set());
  return parts;
}

/** Notes what one part is; returns the names that mean a lambda's parameters inside it. */
function visit(parts: Parts, part: Record<string, unknown>, bound: ReadonlySet<string>): ReadonlySet<string> {
  const kind = part["class"];
  if (typeof kind !== "string") {
    return bound;
  }
  if (!rowWise.has(kind) || part["type"] === "GROUPING_FUNCTION") {
    parts.others.add(kind);
  }
  if (kind === "COLUMN_REF") {
    const [first] = namesOf(part);
    if (first !== undefined && !bound.has(first)) {
      parts.columns.add(first);
    }
  }
  if (kind === "FUNCTION") {
    const { function_name: name, children } = part;
    const isPlain = (part["schema"] === "" || part["schema"] === "main") && part["catalog"] === "";
    const called = isPlain ? String(name) : `${String(part["schema"])}.${String(name)}`;
    parts.functions.set(called, Array.isArray(children) ? children.length : 0);
  }
  if (kind === "LAMBDA") {
    const names = partsOf(part["lhs"]).columns;
    for (const name of names) {
      parts.parameters.add(name);
    }
    return new Set([...bound, ...names]);
  }
  return bound;
}

function namesOf(part: Record<string, unknown>): string[] {
  const names = part["column_names"];
  return Array.isArray(names) ? names.map(String) : [];
}

interface Definition {
  readonly kind: string;
  readonly stability: string | null;
  readonly parameters: readonly string[];
  readonly macro: string | null;
}

async function checkFunctions(
  connection: DuckDBConnection,
  text: string,
  functions: ReadonlyMap<string, number>,
): Promise<void> {
  for (const [name, argumentCount] of functions) {
    const definitions = await definitionsOf(connection, name);
    if (definitions.length === 0) {
      const hint = didYouMean(name, await scalarFunctions(connection));
      throw refused(text, `there is no function \`${name}\`${hint}`);
    }
    for (const definition of definitions) {
      await checkDefinition(connection, text, { name, argumentCount, definition });
    }
  }
}

async function checkDefinition(
  connection: DuckDBConnection,
  text: string,
  { name, argumentCount, definition }: { name: string; argumentCount: number; definition: Definition },
): Promise<void> {
  const { kind, stability, parameters, macro } = definition;
  if (kind === "aggregate") {
    throw refused(text, `\`${name.replace("count_star", "count")}\` is an aggregate, which is of many rows`);
  }
  if (kind.startsWith("table")) {
    throw refused(text, `\`${name}\` gives a table, not a value`);
  }
  if (kind === "macro" && macro !== null) {
    const names = await checkExpression(connection, macro).catch(() => undefined);
    if (names !== undefined && [...names.columns].every((column) => parameters.includes(column))) {
      return;
    }
  } else if (kind === "scalar" && stability === "CONSISTENT" && !readers.has(name)) {
    // Of one time only, it is the age today.
    if (name !== "age" || argumentCount > 1) {
      return;
    }
  }
  throw refused(text, `\`${name}\` does not depend on its arguments alone`);
}

/** A name may be several: `+` of each pair of types; `nullif` is a macro. Names of operators come as they are. */
async function definitionsOf(connection: DuckDBConnection, name: string): Promise<Definition[]> {
  const found = await connection.runAndReadAll(
    `SELECT DISTINCT function_type, stability, to_json(parameters), macro_definition FROM duckdb_functions()
     WHERE function_name = ${quoteText(name.toLowerCase())} AND function_type <> 'pragma'`,
  );
  const all = found.getRows().map(([kind, stability, parameters, macro]) => ({
    kind: String(kind),
    stability: stability === null ? null : String(stability),
    parameters: textList(parseJson(String(parameters))),
    macro: typeof macro === "string" ? macro : null,
  }));
  const scalars = all.filter(({ kind }) => kind === "scalar");
  // For scalar functions only their stability matters, not each signature.
  const stabilities = [...new Map(scalars.map((one) => [one.stability, one])).values()];
  return [...stabilities, ...all.filter(({ kind }) => kind !== "scalar")];
}

function textList(value: unknown): string[] {
  return Array.isArray(value) ? value.map(String) : [];
}

async function scalarFunctions(connection: DuckDBConnection): Promise<string[]> {
  const found = await connection.runAndReadAll(
    "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'scalar' AND stability = 'CONSISTENT'",
  );
  return found.getRows().map(([name]) => String(name));
}
