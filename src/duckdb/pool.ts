import type { DuckDbAccess, DuckDBConnection } from "./instance.js";

/** One connection a stream: a second query on it would silently cut the first one off. */
export interface ConnectionPool {
  use<T>(work: (connection: DuckDBConnection) => Promise<T>): Promise<T>;
  take(): Promise<DuckDBConnection>;
  giveBack(connection: DuckDBConnection): void;
}

export function connectionPool(duckdb: Pick<DuckDbAccess, "connect">): ConnectionPool & { close(): void } {
  const idle: DuckDBConnection[] = [];
  const take = async (): Promise<DuckDBConnection> => idle.pop() ?? (await duckdb.connect());
  const giveBack = (connection: DuckDBConnection): void => {
    idle.push(connection);
  };
  return {
    take,
    giveBack,
    async use(work) {
      const connection = await take();
      try {
        return await work(connection);
      } finally {
        giveBack(connection);
      }
    },
    close() {
      for (const connection of idle) {
        connection.closeSync();
      }
    },
  };
}
