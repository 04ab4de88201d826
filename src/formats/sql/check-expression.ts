import { quoteText } from "../../base/sql.js";
import { parseJson } from "../../run/plan/parse-plan.js";
import type { DuckDBConnection } from "../../duckdb/instance.js";
import { didYouMean } from "../../base/suggest.js";
import { z } from "../../base/zod.js";
import { firstLine } from "../../duckdb/sql.js";
import { JobError, messageOf } from "../../base/errors.js";

/** The key of an object that represents a number. No part of a parsed expression has such a key. */
const numberKey = "#number";

const tokens = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;
const numberObjects = new RegExp(`\\{"${numberKey}":"([^"]*)"\\}`, "g");

/**
 * Parses JSON; undefined when the text is not JSON. A number that float64 would change, or that JavaScript would write
 * in another way, becomes an object, from which `exactJson` writes the same number again.
 * @public so that tests see it
 */
export function parseExactJson(text: string): unknown {
  return parseJson(
    text.replaceAll(tokens, (token) =>
      token.startsWith('"') || String(Number(token)) === token ? token : `{"${numberKey}":"${token}"}`,
    ),
  );
}

/** JSON of what `parseExactJson` returned, with its numbers as they were. @public so that tests see it */
export function exactJson(value: unknown): string {
  return JSON.stringify(value).replaceAll(numberObjects, "$1");
}

/** What an expression names, by the first part of each name. */
export interface NamesInExpression {
  readonly columns: ReadonlySet<string>;
  /** Parameters of lambdas; in the old arrow form they may also be columns (`a -> 'key'`). */
  readonly parameters: ReadonlySet<string>;
}

interface ExpressionParts extends NamesInExpression {
  /** Name, and the smallest number of arguments. */
  readonly functions: ReadonlyMap<string, number>;
  /** What is refused, as words. */
  readonly refused: ReadonlySet<string>;
}

/** Names that DuckDB takes for functions where there is no such column: they look at the clock or the session. */
export const sessionValues: ReadonlySet<string> = new Set([
  "current_catalog",
  "current_date",
  "current_role",
  "current_schema",
  "current_time",
  "current_timestamp",
  "current_user",
  "localtime",
  "localtimestamp",
  "session_user",
  "user",
]);

/** Parts of an expression that see one row and nothing else; `FUNCTION` is checked by name. */
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

interface Collected extends ExpressionParts {
  readonly columns: Set<string>;
  readonly parameters: Set<string>;
  readonly functions: Map<string, number>;
  readonly refused: Set<string>;
}

function partsOf(expression: unknown): ExpressionParts {
  const parts: Collected = { columns: new Set(), parameters: new Set(), functions: new Map(), refused: new Set() };
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
function visit(parts: Collected, part: Record<string, unknown>, bound: ReadonlySet<string>): ReadonlySet<string> {
  const kind = part["class"];
  if (typeof kind !== "string") {
    return bound;
  }
  if (!rowWise.has(kind)) {
    parts.refused.add(refusedParts[kind] ?? `a part (${kind})`);
  }
  switch (kind) {
    case "OPERATOR":
      if (part["type"] === "GROUPING_FUNCTION") {
        parts.refused.add("`grouping`, which is computed over many rows");
      }
      return bound;
    case "CAST":
      if (hasZonedTime(part["cast_type"])) {
        parts.refused.add("a cast to TIME WITH TIME ZONE, whose offset is today's");
      }
      return bound;
    case "COLUMN_REF":
      noteColumn(parts, part, bound);
      return bound;
    case "FUNCTION":
      noteFunction(parts, part);
      return bound;
    case "LAMBDA":
      return new Set([...bound, ...noteParameters(parts, part["lhs"])]);
    default:
      return bound;
  }
}

/** Whether a type is a time with a zone. A text without an offset gets that of the time zone on the day of the run. */
export function isZonedTime(sourceType: string): boolean {
  return /\bTIME WITH TIME ZONE/.test(sourceType);
}

function hasZonedTime(type: unknown): boolean {
  return isZonedTime(JSON.stringify(type));
}

function noteColumn(parts: Collected, part: Record<string, unknown>, bound: ReadonlySet<string>): void {
  const [first] = namesOf(part);
  if (first !== undefined && !bound.has(first)) {
    parts.columns.add(first);
  }
}

function noteFunction(parts: Collected, part: Record<string, unknown>): void {
  const { function_name: name, schema, catalog, children } = part;
  const isPlain = (schema === "" || schema === "main") && catalog === "";
  const called = isPlain ? String(name) : `${String(schema)}.${String(name)}`;
  const argumentCount = Array.isArray(children) ? children.length : 0;
  // The same function may be called twice. The call with fewer arguments counts, because its meaning may differ.
  parts.functions.set(called, Math.min(argumentCount, parts.functions.get(called) ?? argumentCount));
}

/** `x` or `(x, y)` on the left of a lambda's arrow. Anything else there is a value: `f(x) -> 'key'`. */
function noteParameters(parts: Collected, left: unknown): string[] {
  const list = isObject(left) && left["function_name"] === "row" ? left["children"] : [left];
  const names = Array.isArray(list) ? list.flatMap(parameterName) : [];
  if (!Array.isArray(list) || names.length < list.length) {
    return [];
  }
  for (const name of names) {
    parts.parameters.add(name);
    if (sessionValues.has(name.toLowerCase())) {
      parts.refused.add(`\`${name}\` before an arrow, where it may be a value of the session`);
    }
  }
  return names;
}

function parameterName(part: unknown): string[] {
  const names = isObject(part) && part["class"] === "COLUMN_REF" ? namesOf(part) : [];
  return names.length === 1 ? names : [];
}

function namesOf(part: Record<string, unknown>): string[] {
  const names = part["column_names"];
  return Array.isArray(names) ? names.map(String) : [];
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Functions that DuckDB calls CONSISTENT though they look at a clock, a setting, a variable or a file. */
const readers: ReadonlySet<string> = new Set([
  "current_localtime",
  "current_localtimestamp",
  "current_setting",
  "getvariable",
  // Plans the query of its argument: it binds files and computes constants.
  "json_serialize_plan",
  "version",
]);

interface Definition {
  readonly kind: string;
  readonly stability: string | null;
  readonly parameters: readonly string[];
  readonly macro: string | null;
}

/** Names in the definition of a macro; undefined where it is not row-wise. */
type MacroCheck = (definition: string) => Promise<NamesInExpression | undefined>;

async function faultOfFunctions(
  connection: DuckDBConnection,
  functions: ReadonlyMap<string, number>,
  checkMacro: MacroCheck,
): Promise<string | undefined> {
  const lookUp = await definitionsOf(connection);
  for (const [name, argumentCount] of functions) {
    const definitions = lookUp(name);
    if (definitions.length === 0) {
      return `there is no function \`${name}\`${didYouMean(name, await scalarFunctions(connection))}`;
    }
    for (const definition of definitions) {
      const fault = await faultOf({ name, argumentCount, definition }, checkMacro);
      if (fault !== undefined) {
        return fault;
      }
    }
  }
  return undefined;
}

async function faultOf(
  { name, argumentCount, definition }: { name: string; argumentCount: number; definition: Definition },
  checkMacro: MacroCheck,
): Promise<string | undefined> {
  const { kind, stability, parameters, macro } = definition;
  if (kind === "aggregate") {
    return `\`${name.replace("count_star", "count")}\` is an aggregate, which is computed over many rows`;
  }
  if (kind.startsWith("table")) {
    return `\`${name}\` gives a table, not a value`;
  }
  if (kind === "macro" && macro !== null) {
    const names = await checkMacro(macro);
    if (names !== undefined && [...names.columns].every((column) => parameters.includes(column))) {
      return undefined;
    }
  } else if (kind === "scalar" && stability === "CONSISTENT" && !readers.has(name) && !name.startsWith("__internal")) {
    // Of one time only, it is the age today.
    if (name !== "age" || argumentCount > 1) {
      return undefined;
    }
  }
  return `\`${name}\` does not depend on its arguments alone`;
}

/** All connections have the same functions. Reading them takes 25 ms of CPU, more than all else for an expression. */
let known: ReadonlyMap<string, readonly Definition[]> | undefined;

/** By name in lower case. A name may have several definitions: `+` for each pair of types; `nullif` is a macro. */
async function allDefinitions(connection: DuckDBConnection): Promise<ReadonlyMap<string, readonly Definition[]>> {
  const found = await connection.runAndReadAll(
    // Of scalar functions only their stability matters, not each signature.
    `SELECT DISTINCT lower(function_name), function_type, stability,
       to_json(CASE function_type WHEN 'macro' THEN parameters END), macro_definition
     FROM duckdb_functions() WHERE function_type <> 'pragma'`,
  );
  const all = new Map<string, Definition[]>();
  for (const [name, kind, stability, parameters, macro] of found.getRows()) {
    const same = all.get(String(name)) ?? [];
    same.push({
      kind: String(kind),
      stability: stability === null ? null : String(stability),
      parameters: textList(parseJson(String(parameters))),
      macro: typeof macro === "string" ? macro : null,
    });
    all.set(String(name), same);
  }
  return all;
}

async function definitionsOf(connection: DuckDBConnection): Promise<(name: string) => readonly Definition[]> {
  const all = (known ??= await allDefinitions(connection));
  return (name) => {
    const found = all.get(name.toLowerCase()) ?? [];
    // A table function cannot be called in place of a value, where `range` and `repeat` are scalar functions.
    return found.some(({ kind }) => kind === "scalar") ? found.filter(({ kind }) => kind !== "table") : found;
  };
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

/** The SQL of a part of a parsed expression. */
export async function sqlOf(connection: DuckDBConnection, part: unknown): Promise<string> {
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

interface Conjunct {
  readonly sql: string;
  /** The columns that it names; undefined: parameters of lambdas, which may be columns, are among its names. */
  readonly columns: ReadonlySet<string> | undefined;
}

/** The parts of a condition that must all be true. */
export async function conjunctsOf(connection: DuckDBConnection, text: string): Promise<Conjunct[]> {
  const split = (part: unknown): readonly unknown[] =>
    isObject(part) && part["type"] === "CONJUNCTION_AND" && Array.isArray(part["children"])
      ? part["children"].flatMap(split)
      : [part];
  const conjuncts: Conjunct[] = [];
  for (const part of split(await parseExpression(connection, text))) {
    const { columns, parameters } = partsOf(part);
    conjuncts.push({ sql: await sqlOf(connection, part), columns: parameters.size > 0 ? undefined : columns });
  }
  return conjuncts;
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
