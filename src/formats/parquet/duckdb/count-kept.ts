import type { ConnectionPool } from "../../../duckdb/instance.js";
import type { MemoryBudget } from "../../../util/memory-budget.js";
import { plannedColumns } from "../../planned-columns.js";
import type { SliceRequest } from "../../port.js";
import { keptCountSql, slicesTable } from "../../sql/slice-sql.js";
import type { ExactTables } from "./exact-table.js";
import { areReadableTogether, readableParts } from "./readable-parts.js";

/**
 * Counts the rows of slices that their filter keeps. DuckDB counts: a twentieth of the CPU time of reading the rows.
 * Several slices are whole shards with the same partitions.
 * @throws JobError SHARD_CORRUPT; what DuckDB says
 */
export async function countKept(
  {
    pool,
    memory,
    exact,
  }: { readonly pool: ConnectionPool; readonly memory: MemoryBudget; readonly exact: ExactTables },
  slices: readonly SliceRequest[],
): Promise<number> {
  const count = (slice: SliceRequest, table: string): Promise<number> =>
    pool.use(async (connection) => {
      const [row] = (await connection.runAndReadAll(keptCountSql(slice, table))).getRows();
      return Number(row?.[0]);
    });
  const [first, second] = slices;
  if (first !== undefined && second !== undefined && (await areReadableTogether(slices, memory))) {
    return await count({ ...first, rowEnd: Number.MAX_SAFE_INTEGER }, slicesTable(slices));
  }
  let kept = 0;
  for (const slice of slices) {
    const { parts, footer, unfit } = await readableParts(slice, memory);
    if (unfit !== undefined) {
      throw unfit.error;
    }
    for (const part of parts) {
      for (const { slice: rows, ranges } of await exact.parts(part, footer)) {
        const columns = plannedColumns(rows.projection);
        kept += await exact.use({ file: rows.file, footer, columns, ranges }, (table) => count(rows, table));
      }
    }
  }
  return kept;
}
