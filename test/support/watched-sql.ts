import type { DuckDBConnection } from "#src/duckdb/instance.js";

/** A connection that adds the statements that it runs to `statements`. */
export function watched(connection: DuckDBConnection, statements: string[]): DuckDBConnection {
  return new Proxy(connection, {
    get: (of, name) =>
      name === "run"
        ? async (sql: string) => (statements.push(sql), await of.run(sql))
        : Reflect.get(of, name).bind(of),
  });
}
