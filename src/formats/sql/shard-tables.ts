import type { ColumnType } from "../../columnar/types.js";
import type { DuckDBConnection } from "../../duckdb/instance.js";
import type { ShardFile } from "../port.js";

/** Rows of a shard as a table of DuckDB's, whatever the shard's format. */
export interface ShardTables {
  /**
   * `table` has `rowNumberColumn` and at least these rows and columns, for as long as `work` goes on. A column's type is
   * given where it is known.
   */
  use<T>(
    file: ShardFile,
    wanted: { readonly rows: readonly number[]; readonly columns: readonly WantedColumn[] },
    work: (connection: DuckDBConnection, table: string) => Promise<T>,
  ): Promise<T>;
}

export interface WantedColumn {
  readonly name: string;
  readonly type?: ColumnType | undefined;
}
