import type { SourceColumn } from "../batch/types.js";
import { JobError } from "../errors.js";
import { type Footer, readFooter } from "./parquet-footer.js";
import { rowNumberColumn } from "./parquet-sql.js";
import { plainColumns } from "./parquet-storage.js";
import type { ShardFile, ShardFooter, ShardSchema } from "./port.js";

/** Files a query; one by one costs ten times as much. Bounds memory too. */
const filesPerQuery = 256;
/** Files that are open at once. */
const filesAtOnce = 16;

/** Of a footer, what is kept while others are read: not the places of its column chunks. */
interface FileFacts extends Omit<ShardFooter, "schema"> {
  /** undefined: DuckDB is asked. */
  readonly columns: readonly SourceColumn[] | undefined;
}

/** Tells the columns of files of which a footer alone does not. */
export interface SchemaReader {
  /** Of everything in a footer that the columns' types can depend on, by path. @throws JobError SHARD_CORRUPT */
  digests(paths: readonly string[]): Promise<ReadonlyMap<string, string>>;
  /** @throws JobError SHARD_CORRUPT */
  columns(path: string): Promise<readonly SourceColumn[]>;
}

/** `schemas`: those that were met before; files with the same columns get the same object. */
export async function* readFooters(
  reader: () => Promise<SchemaReader>,
  files: readonly ShardFile[],
  schemas = new Map<string, ShardSchema>(),
): AsyncGenerator<ShardFooter> {
  for (let start = 0; start < files.length; start += filesPerQuery) {
    // Our own reading comes first: it says plainly what is wrong with a file, and names it.
    const facts = await readFacts(files.slice(start, start + filesPerQuery));
    const unknown = facts.flatMap(({ path, columns }) => (columns === undefined ? [path] : []));
    const digests = unknown.length === 0 ? undefined : await (await reader()).digests(unknown);
    for (const { columns, ...footer } of facts) {
      const { path } = footer;
      const digest = columns === undefined ? digests?.get(path) : JSON.stringify(columns);
      if (digest === undefined) {
        throw new Error(`DuckDB gave no schema for ${path}`);
      }
      let schema = schemas.get(digest);
      if (schema === undefined) {
        schema = checkedSchema(path, columns ?? (await (await reader()).columns(path)));
        schemas.set(digest, schema);
      }
      yield { ...footer, schema };
    }
  }
}

async function readFacts(files: readonly ShardFile[]): Promise<FileFacts[]> {
  const facts: FileFacts[] = [];
  for (let start = 0; start < files.length; start += filesAtOnce) {
    const some = files.slice(start, start + filesAtOnce);
    facts.push(...(await Promise.all(some.map(async (file) => summary(file.path, await readFooter(file))))));
  }
  return facts;
}

function summary(path: string, { rows, rowGroups, leaves, sizeBytes, encrypted: isEncrypted }: Footer): FileFacts {
  const closed = rowGroups.flatMap(({ chunks }) => chunks.filter(({ encrypted }) => encrypted));
  const encrypted = [...new Set(closed.map((chunk) => chunk.path[0] ?? ""))];
  const columns = isEncrypted || encrypted.length > 0 ? undefined : plainColumns(leaves);
  return { path, rows, rowGroups: rowGroups.length, sizeBytes, encrypted, columns };
}

function checkedSchema(path: string, columns: readonly SourceColumn[]): ShardSchema {
  if (columns.some(({ name }) => name.toLowerCase() === rowNumberColumn)) {
    throw new JobError("SCHEMA_MISMATCH", `reading the schema of ${path}: a column is called ${rowNumberColumn}`, {
      hint: "that name is taken by the reader; rename the column",
    });
  }
  return { columns };
}
