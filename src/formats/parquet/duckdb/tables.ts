import type { ConnectionPool } from "../../../duckdb/pool.js";
import type { ShardTables } from "../../sql/shard-tables.js";
import { parquetTable } from "../../sql/slice-sql.js";
import { fetchRows } from "../windows.js";

/** Shards as tables of DuckDB, which reads the files itself. */
export function parquetTables(pool: ConnectionPool): ShardTables {
  return {
    async use(file, { rows, columns }, work) {
      await fetchRows(file, { rows, columns: columns.map(({ name }) => name) });
      return await pool.use((connection) => work(connection, parquetTable(file.path)));
    },
  };
}
