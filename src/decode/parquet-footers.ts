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
      hint: "the file is damaged, unfinished or not Parquet; write it again, or take it out of input.path",
      cause: error,
    });
  }
}

async function queryFooters(connection: DuckDBConnection, paths: readonly string[]): Promise<Map<string, FileFacts>> {
  const digests = await schemaDigests(connection, paths);
  const files = await connection.runAndReadAll(
    `SELECT file_name, num_rows, num_row_groups, file_size_bytes FROM parquet_file_metadata(${quotePaths(paths)})`,
  );
  return new Map(
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
