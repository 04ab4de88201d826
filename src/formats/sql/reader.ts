import { type ConnectionPool, createConnectionPool, openDuckDbLazily } from "../../duckdb/instance.js";
import { quoteText } from "../../duckdb/sql.js";

export interface DuckDbReader extends AsyncDisposable {
  readonly pool: ConnectionPool;
}

export interface DuckDbReaderOptions {
  readonly threads: number;
  /** The folders that shards may be read from; nothing else can be. */
  readonly folders: readonly string[];
  readonly timezone: string;
  /** Bytes that DuckDB may hold; default: what it thinks right. */
  readonly memoryBytes?: number | undefined;
}

/** The slice that is read and the one after it. */
const streams = 2;

/** DuckDB is loaded when it is asked something: where shards are simple, that may be never. */
export function openDuckDbReader({ threads, folders, timezone, memoryBytes }: DuckDbReaderOptions): DuckDbReader {
  const duckdb = openDuckDbLazily({
    threads,
    memoryBytes,
    allowed: { folders },
    settings: { TimeZone: quoteText(timezone) },
    prepared: { connections: streams, settings: { streaming_buffer_size: "'16MB'" } },
  });
  const pool = createConnectionPool(duckdb);
  return {
    pool,
    async [Symbol.asyncDispose]() {
      pool.close();
      await duckdb[Symbol.asyncDispose]();
    },
  };
}
