import type { ConnectionPool } from "../../../duckdb/instance.js";
import type { ShardTables } from "../../sql/shard-tables.js";
import { boundsOf } from "../../sql/slice-sql.js";
import { readFooter } from "../footer/read-footer.js";
import { rangesBetween } from "../windows.js";
import type { ExactTables } from "./exact-table.js";

/** Shards as tables of DuckDB, which reads the files itself. */
export function parquetTables(pool: ConnectionPool, exact: ExactTables): ShardTables {
  return {
    async use(file, { rows, columns }, work) {
      const footer = await readFooter(file);
      const names = columns.map(({ name }) => name);
      const ranges = rangesBetween(footer, boundsOf(rows), names);
      await file.remote?.fetch(ranges);
      const wanted = new Map(columns.map(({ name, type }) => [name, type]));
      return await exact.use({ file, footer, columns: wanted, ranges }, (table) =>
        pool.use((connection) => work(connection, table)),
      );
    },
  };
}
