import { openDuckDb } from "../../duckdb/instance.js";
import type { JobContext } from "../../scoring/context.js";

/** Makes a function that opens a DuckDB which reads Parquet parts in a folder. */
export function partReaders(limits: {
  readonly threads: number;
  readonly memoryBytes: number;
}): JobContext["openPartReader"] {
  return async (folder) => {
    const { rowsWithout } = await import("../../duckdb/key-match.js");
    const duckdb = await openDuckDb({ ...limits, allowed: { folders: [folder] } });
    const connection = await duckdb.connect();
    return {
      rows: (path, columns) => rowsWithout(connection, path, { columns, without: [] }),
      async [Symbol.asyncDispose]() {
        connection.closeSync();
        await Promise.resolve(duckdb[Symbol.dispose]());
      },
    };
  };
}
