import { expect, test } from "vitest";
import { checkExpression } from "#src/formats/sql/check-expression.js";
import { openDuckDb } from "#src/duckdb/instance.js";

/**
 * Each function was looked at, and called under two clocks and environments where it can be called: what a new
 * release of DuckDB adds must be looked at too.
 */
test("the functions that may be called are those that were reviewed", async () => {
  const duckdb = await openDuckDb({ threads: 1, allowed: {} });
  const connection = await duckdb.connect();
  const found = await connection.runAndReadAll(
    `SELECT function_name, bool_or(function_type = 'macro') FROM duckdb_functions()
     WHERE function_type IN ('scalar', 'macro') AND function_name NOT LIKE 'icu_collate_%' GROUP BY 1 ORDER BY 1`,
  );
  const told = { scalars: [] as string[], macros: [] as string[], refused: [] as string[] };
  for (const [name, isMacro] of found.getRows()) {
    const call = `"${String(name)}"(1, 2)`;
    const taken = await checkExpression(connection, call).then(
      () => true,
      () => false,
    );
    told[taken ? (isMacro === true ? "macros" : "scalars") : "refused"].push(String(name));
  }
  connection.closeSync();
  duckdb[Symbol.dispose]();
  expect(told).toMatchSnapshot();
});
