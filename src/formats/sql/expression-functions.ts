import type { DuckDBConnection } from "../../duckdb/instance.js";
import { parseJson } from "../../plan/parse-plan.js";
import { didYouMean } from "../../util/suggest.js";
import type { NamesInExpression } from "./expression-parts.js";

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
export type MacroCheck = (definition: string) => Promise<NamesInExpression | undefined>;

/** What is wrong with the functions of an expression; undefined when each depends on its arguments alone. */
export async function faultOfFunctions(
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

/**
 * All connections of a process have the same functions, those of the library. Reading them takes 25 ms of CPU time, longer
 * than everything else that is done with an expression.
 */
let known: ReadonlyMap<string, readonly Definition[]> | undefined;

/**
 * Reads all functions, by name in lower case. A name may have several definitions: `+` for each pair of types; `nullif`
 * is a macro.
 */
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
