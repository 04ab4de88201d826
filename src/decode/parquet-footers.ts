import type { SourceColumn } from "../batch/types.js";
import type { DuckDBConnection } from "../duckdb/instance.js";
import { readColumns, schemaDigests } from "../duckdb/parquet-schema.js";
import type { ConnectionPool } from "../duckdb/pool.js";
import { firstLine } from "../duckdb/sql.js";
import { JobError, messageOf } from "../errors.js";
import { type Footer, readFooter } from "./parquet-footer.js";
import { rowNumberColumn } from "./parquet-sql.js";
import type { ShardFile, ShardFooter, ShardSchema } from "./port.js";

/** Files a query; one by one costs ten times as much. Bounds memory too. */
const filesPerQuery = 256;
/** Files that are open at once. */
const filesAtOnce = 16;

/** Of a footer, what is kept while others are read: not the places of its column chunks. */
type FileFacts = Omit<ShardFooter, "schema">;

/** `schemas`: those that were met before; files with the same columns get the same object. */
export async function* readFooters(
  pool: ConnectionPool,
  files: readonly ShardFile[],
  schemas = new Map<string, ShardSchema>(),
): AsyncGenerator<ShardFooter> {
  for (let start = 0; start < files.length; start += filesPerQuery) {
    const group = files.slice(start, start + filesPerQuery);
    const { facts, digests } = await readGroup(pool, group);
    for (const footer of facts) {
      const schemaDigest = digests.get(footer.path);
      if (schemaDigest === undefined) {
        throw new Error(`DuckDB gave no schema for ${footer.path}`);
      }
      let schema = schemas.get(schemaDigest);
      if (schema === undefined) {
        schema = await pool.use((connection) => readSchema(connection, footer.path));
        schemas.set(schemaDigest, schema);
      }
      yield { ...footer, schema };
    }
  }
}

/** Our own reading comes first: it says plainly what is wrong with a file, and names it. */
async function readGroup(
  pool: ConnectionPool,
  files: readonly ShardFile[],
): Promise<{ facts: readonly FileFacts[]; digests: ReadonlyMap<string, string> }> {
  const facts: FileFacts[] = [];
  for (let start = 0; start < files.length; start += filesAtOnce) {
    const some = files.slice(start, start + filesAtOnce);
    facts.push(...(await Promise.all(some.map(async (file) => summary(file.path, await readFooter(file))))));
  }
  const paths = files.map(({ path }) => path);
  return { facts, digests: await pool.use((connection) => readDigests(connection, paths)) };
}

function summary(path: string, { rows, rowGroups, sizeBytes }: Footer): FileFacts {
  const closed = rowGroups.flatMap(({ chunks }) => chunks.filter(({ encrypted }) => encrypted));
  const encrypted = [...new Set(closed.map((chunk) => chunk.path[0] ?? ""))];
  return { path, rows, rowGroups: rowGroups.length, sizeBytes, encrypted };
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
      hint: "the footer is damaged; write the shard again, or take it out of input.path",
      cause: error,
    });
  }
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
