import type { SourceColumn } from "../../../columnar/types.js";
import type { ConnectionPool, DuckDBConnection } from "../../../duckdb/instance.js";
import { readColumns, schemaDigests } from "../../../duckdb/parquet-schema.js";
import { firstLine } from "../../../duckdb/sql.js";
import { JobError, messageOf } from "../../../util/errors.js";
import { rewriteShard } from "../../error-hints.js";
import type { SchemaReader } from "../footer/footers.js";
import type { Leaf } from "../footer/leaves.js";

/** Opens a reader of schemas as DuckDB interprets them. */
export function schemaReader(pool: ConnectionPool): SchemaReader {
  return {
    digests: (paths) => pool.use((connection) => readDigests(connection, paths)),
    columns: (path, leaves) => pool.use((connection) => readSchema(connection, path, leaves)),
  };
}

async function readDigests(
  connection: DuckDBConnection,
  paths: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  try {
    return await schemaDigests(connection, paths);
  } catch (error) {
    // The message does not always name the file: find the first that fails alone.
    for (const path of paths.length > 1 ? paths : []) {
      await readDigests(connection, [path]);
    }
    const path = paths[0] ?? "";
    const found = firstLine(messageOf(error)).replaceAll(` '${path}'`, "");
    throw new JobError("SHARD_CORRUPT", `reading the footer of ${path}: ${found}`, {
      hint: `the footer is damaged; ${rewriteShard}`,
      cause: error,
    });
  }
}

async function readSchema(
  connection: DuckDBConnection,
  path: string,
  leaves: readonly Leaf[],
): Promise<SourceColumn[]> {
  try {
    return await readColumns(connection, path, leaves);
  } catch (error) {
    throw new JobError("SHARD_CORRUPT", `reading the schema of ${path}: ${firstLine(messageOf(error))}`, {
      hint: "the file is damaged or not Parquet; write it again, or take it out of input.path",
      cause: error,
    });
  }
}
