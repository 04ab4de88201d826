import type { SourceColumn } from "../batch/types.js";
import { type DuckDBConnection, firstLine, quotePaths } from "../duckdb/instance.js";
import { readColumns, schemaDigests } from "../duckdb/parquet-schema.js";
import type { ConnectionPool } from "../duckdb/pool.js";
import { JobError, messageOf } from "../errors.js";
import { rowNumberColumn } from "./parquet-sql.js";
import type { ShardFooter, ShardSchema } from "./port.js";

/** Files a query; one by one costs ten times as much. Bounds memory too. */
const filesPerQuery = 256;

interface FileFacts {
  readonly rows: number;
  readonly rowGroups: number;
  readonly sizeBytes: number;
  readonly schemaDigest: string;
}

export async function* readFooters(pool: ConnectionPool, paths: readonly string[]): AsyncGenerator<ShardFooter> {
  const schemas = new Map<string, ShardSchema>();
  for (let start = 0; start < paths.length; start += filesPerQuery) {
    const group = paths.slice(start, start + filesPerQuery);
    const facts = await pool.use((connection) => readGroup(connection, group));
    for (const path of group) {
      const found = facts.get(path);
      if (found === undefined) {
        throw new Error(`DuckDB gave no footer for ${path}`);
      }
      let schema = schemas.get(found.schemaDigest);
      if (schema === undefined) {
        schema = await pool.use((connection) => readSchema(connection, path));
        schemas.set(found.schemaDigest, schema);
      }
      yield { path, rows: found.rows, rowGroups: found.rowGroups, sizeBytes: found.sizeBytes, schema };
    }
  }
}

async function readGroup(connection: DuckDBConnection, paths: readonly string[]): Promise<Map<string, FileFacts>> {
  try {
    return await queryFooters(connection, paths);
  } catch (error) {
    // The message does not always name the file: find the first that fails alone.
    for (const path of paths.length > 1 ? paths : []) {
      await readGroup(connection, [path]);
    }
    const path = paths[0] ?? "";
    const found = firstLine(messageOf(error)).replaceAll(` '${path}'`, "");
    throw new JobError("SHARD_CORRUPT", `reading the footer of ${path}: ${found}`, {
      hint: `${causeOf(found)}, or take it out of input.path`,
      cause: error,
    });
  }
}

/** What people can do about a footer that DuckDB refuses. */
function causeOf(found: string): string {
  if (found.includes("encrypted")) {
    return "encrypted files cannot be read; write it without encryption";
  }
  if (found.includes("Invalid unicode")) {
    // A footer in plain text that says how the columns are encrypted does so in random bytes.
    return "the file is damaged, or its columns are encrypted, which cannot be read; write it again without encryption";
  }
  return "the file is damaged, unfinished or not Parquet; write it again";
}

async function queryFooters(connection: DuckDBConnection, paths: readonly string[]): Promise<Map<string, FileFacts>> {
  const digests = await schemaDigests(connection, paths);
  const files = await connection.runAndReadAll(
    `SELECT file_name, num_rows, num_row_groups, file_size_bytes FROM parquet_file_metadata(${quotePaths(paths)})`,
  );
  const facts = new Map(
    files.getRows().map(([path, rows, rowGroups, sizeBytes]) => [
      String(path),
      {
        rows: Number(rows),
        rowGroups: Number(rowGroups),
        sizeBytes: Number(sizeBytes),
        schemaDigest: digests.get(String(path)) ?? "",
      },
    ]),
  );
  for (const [path, rows] of await rowsBeyondFooters(connection, facts)) {
    const found = facts.get(path);
    if (found !== undefined) {
      facts.set(path, { ...found, rows });
    }
  }
  return facts;
}

/**
 * Rows of the files whose row groups hold more than the footer's own count, which some writers leave at 0: to believe
 * it would lose them. Where the row groups hold fewer, the count stands, and reading the file tells that it is damaged.
 */
async function rowsBeyondFooters(
  connection: DuckDBConnection,
  facts: ReadonlyMap<string, FileFacts>,
): Promise<Map<string, number>> {
  const list = quotePaths([...facts.keys()]);
  const told = [...facts.values()].reduce((sum, { rows }) => sum + rows, 0);
  // Counts the rows of the row groups without reading one, at a third of the cost of asking for each file.
  const total = await connection.runAndReadAll(`SELECT count(*) FROM read_parquet(${list}, hive_partitioning = false)`);
  if (Number(total.getRows()[0]?.[0]) === told) {
    return new Map();
  }
  const counted = await connection.runAndReadAll(
    `SELECT file_name, sum(row_group_num_rows) FROM parquet_metadata(${list}) WHERE column_id = 0 GROUP BY file_name`,
  );
  return new Map(
    counted.getRows().flatMap(([path, rows]): [string, number][] => {
      const found = facts.get(String(path));
      return found !== undefined && Number(rows) > found.rows ? [[String(path), Number(rows)]] : [];
    }),
  );
}

async function readSchema(connection: DuckDBConnection, path: string): Promise<ShardSchema> {
  let columns: SourceColumn[];
  try {
    columns = await readColumns(connection, path);
  } catch (error) {
    throw new JobError("SHARD_CORRUPT", `reading the schema of ${path}: ${firstLine(messageOf(error))}`, {
      hint: "the file is damaged or not Parquet; write it again, or take it out of input.path",
      cause: error,
    });
  }
  if (columns.some(({ name }) => name.toLowerCase() === rowNumberColumn)) {
    throw new JobError("SCHEMA_MISMATCH", `reading the schema of ${path}: a column is called ${rowNumberColumn}`, {
      hint: "that name is taken by the reader; rename the column",
    });
  }
  return { columns };
}
