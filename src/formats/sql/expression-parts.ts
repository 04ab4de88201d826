/** What an expression names, by the first part of each name. */
export interface NamesInExpression {
  readonly columns: ReadonlySet<string>;
  /** Parameters of lambdas; in the old arrow form they may also be columns (`a -> 'key'`). */
  readonly parameters: ReadonlySet<string>;
}

/** What an expression is made of. */
export interface ExpressionParts extends NamesInExpression {
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

/** Returns all parts of a parsed expression: in DuckDB's JSON, the objects with a `class`. */
export function partsOf(expression: unknown): ExpressionParts {
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

/**
 * The names on the left of a lambda's arrow: `x` or `(x, y)`. Anything else on the left is a value: `f(x) -> 'key'`.
 */
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
