import type { DuckDBConnection } from "./instance.js";

/**
 * What is joined at once, in memory limits, of both tables together. DuckDB joins what does not fit in memory, but fails
 * where it is some twenty times as much.
 */
const limitsAtOnce = 4;

/** Returns in how many passes the tables of a DuckDB are joined, each over the keys with some of the hashes. */
export async function countPasses(connection: DuckDBConnection, memoryBytes: number): Promise<number> {
  const result = await connection.runAndReadAll(
    "SELECT sum(memory_usage_bytes + temporary_storage_bytes)::DOUBLE FROM duckdb_memory()",
  );
  const [[bytes] = []] = result.getRows();
  return Math.max(1, Math.ceil(Number(bytes) / (limitsAtOnce * memoryBytes)));
}

/** SQL for the condition that a row is joined in a pass. `keys`: SQL of its key columns. */
export function isInPass(keys: readonly string[], pass: number, passes: number): string {
  // The 0 makes it another hash than that of the join, which needs all of the bits of its own.
  return passes === 1 ? "true" : `hash(${keys.join(", ")}, 0) % ${passes} = ${pass}`;
}

/**
 * SQL for the keys that are several times among rows. Groups of hashes take less memory than groups of keys: keys are
 * grouped only where a hash is several times there.
 */
export function repeatedKeys(keys: readonly string[], rows: string): string {
  const [list, hash] = [keys.join(", "), `hash(${keys.join(", ")})`];
  return `SELECT ${list} FROM ${rows} WHERE ${hash} IN (SELECT ${hash} FROM ${rows} GROUP BY ${hash} HAVING count(*) > 1)
    GROUP BY ${list} HAVING count(*) > 1`;
}
