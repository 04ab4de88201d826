import type { KeyCounts } from "../../checks/rules/spec.js";
import type { DuckDb, DuckDBConnection } from "../../duckdb/instance.js";
import { firstLine, quoteName, quotePaths } from "../../duckdb/sql.js";
import { JobError, messageOf } from "../../util/errors.js";

/** Opens a DuckDB that may read parts, and that has a folder for data that does not fit in memory. */
export type OpenKeyDuckDb = () => Promise<Pick<DuckDb, "connect"> & AsyncDisposable>;

/** The number of repeated keys that a verdict names. */
const shownKeys = 3;

/**
 * Counts how often keys repeat in parts. The count is exact, and memory is bounded. @param groups paths of parts on
 * this machine; the parts of a group must be readable until the next group is requested
 * @throws JobError MEMORY, DISK, OUTPUT_DAMAGED
 */
export async function countKeysIn(
  open: OpenKeyDuckDb,
  columns: readonly string[],
  groups: AsyncIterable<readonly string[]>,
): Promise<KeyCounts> {
  await using duckdb = await open();
  const connection = await duckdb.connect();
  try {
    const from = await loadKeys(connection, columns, groups);
    return from === undefined ? { repeated: 0, nulls: 0, examples: [] } : await countIn(connection, columns, from);
  } catch (error) {
    throw keyError(error);
  } finally {
    connection.closeSync();
  }
}

/**
 * Loads the keys of all groups, and returns the SQL name of their table; undefined: there is no group. Each group is
 * loaded before the next one is requested.
 */
async function loadKeys(
  connection: DuckDBConnection,
  columns: readonly string[],
  groups: AsyncIterable<readonly string[]>,
): Promise<string | undefined> {
  let isFirst = true;
  for await (const paths of groups) {
    const rows = `SELECT ${columns.map(quoteName).join(", ")} FROM read_parquet(${quotePaths(paths)}, hive_partitioning = false)`;
    await connection.run(isFirst ? `CREATE TEMP TABLE keys AS ${rows}` : `INSERT INTO keys ${rows}`);
    isFirst = false;
  }
  return isFirst ? undefined : "keys";
}

async function countIn(connection: DuckDBConnection, columns: readonly string[], from: string): Promise<KeyCounts> {
  const names = columns.map(quoteName);
  const isNull = names.map((name) => `${name} IS NULL`).join(" OR ");
  const shown = `concat_ws(', ', ${names.map((name) => `left(${name}::VARCHAR, 60)`).join(", ")})`;
  const counted = await connection.runAndReadAll(
    `WITH counts AS (
       SELECT ${names.join(", ")}, count(*) AS copies FROM ${from} WHERE NOT (${isNull})
       GROUP BY ${names.join(", ")} HAVING count(*) > 1)
     SELECT coalesce(sum(copies - 1), 0)::DOUBLE, min(${shown}, ${shownKeys}) FROM counts`,
  );
  const [[repeated, examples] = []] = counted.getRowsJson();
  const [[nulls] = []] = (
    await connection.runAndReadAll(`SELECT count(*)::DOUBLE FROM ${from} WHERE ${isNull}`)
  ).getRows();
  return {
    repeated: Number(repeated),
    nulls: Number(nulls),
    examples: Array.isArray(examples) ? examples.map(String) : [],
  };
}

/** Turns an error of DuckDB into a JobError. */
function keyError(error: unknown): unknown {
  const said = firstLine(messageOf(error));
  if (error instanceof JobError || !/^[A-Z][A-Za-z ]* Error: /.test(said)) {
    return error;
  }
  const doing = `counting the keys of the run: ${said}`;
  if (/^Out of Memory Error|^IO Error/.test(said)) {
    return new JobError(said.startsWith("IO") ? "DISK" : "MEMORY", doing, {
      hint: "checks.unique needs space for the keys of all rows: raise engine.memory, or set TMPDIR to a folder with more free space; then run the same command again",
      cause: error,
    });
  }
  return new JobError("OUTPUT_DAMAGED", doing, {
    hint: "a part was changed since it was written; see `infer-batch status`",
    cause: error,
  });
}
