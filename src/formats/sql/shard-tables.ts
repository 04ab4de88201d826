import type { ColumnType } from "../../columnar/types.js";
import type { DuckDBConnection } from "../../duckdb/instance.js";
import type { ShardFile } from "../port.js";

/** Rows of a shard as a table of DuckDB, for a shard of any format. */
export interface ShardTables {
  /**
   * `table` has `rowNumberColumn` and at least these rows and columns, during `work`. A column's type is given where it
   * is known.
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
