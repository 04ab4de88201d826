import type { DuckDBDataChunk } from "@duckdb/node-api";
import type { ConnectionPool } from "../../../duckdb/instance.js";
import { awaitedLater, settled } from "../../../util/promises.js";

/**
 * The chunks that a query gives, of 2,048 rows at most. A chunk holds until the next one is asked for.
 * A stream over a damaged file may end without an error: the caller must count the rows.
 * @throws what DuckDB says
 */
export async function* streamChunks(pool: ConnectionPool, sql: string): AsyncGenerator<DuckDBDataChunk> {
  const connection = await pool.acquire();
  let finished = false;
  let fetched: Promise<DuckDBDataChunk | null> | undefined;
  try {
    const result = await connection.stream(sql);
    fetched = result.fetchChunk();
    for (;;) {
      const chunk = await fetched;
      if (chunk === null || chunk.rowCount === 0) {
        break;
      }
      // Decoded while this one is packed: DuckDB's only thread may be the one that fetches.
      fetched = awaitedLater(result.fetchChunk());
      yield chunk;
    }
    finished = true;
  } finally {
    if (finished) {
      pool.release(connection);
    } else {
      await settled(fetched);
      connection.closeSync(); // a stream that was left in the middle must not be met by the next query
    }
  }
}
