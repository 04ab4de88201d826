import type { DuckDbAccess, DuckDBConnection } from "./instance.js";

/** Connections to one instance. Each stream needs its own: a second query on a connection silently truncates the first. */
export interface ConnectionPool {
  /** Runs `work` with a connection that is released at its end. */
  use<T>(work: (connection: DuckDBConnection) => Promise<T>): Promise<T>;
  acquire(): Promise<DuckDBConnection>;
  release(connection: DuckDBConnection): void;
}

/** Makes an empty pool. `close` closes its idle connections. */
export function createConnectionPool(duckdb: Pick<DuckDbAccess, "connect">): ConnectionPool & { close(): void } {
  const idle: DuckDBConnection[] = [];
  const acquire = async (): Promise<DuckDBConnection> => idle.pop() ?? (await duckdb.connect());
  const release = (connection: DuckDBConnection): void => {
    idle.push(connection);
  };
  return {
    acquire,
    release,
    async use(work) {
      const connection = await acquire();
      try {
        return await work(connection);
      } finally {
        release(connection);
      }
    },
    close() {
      for (const connection of idle) {
        connection.closeSync();
      }
    },
  };
}
