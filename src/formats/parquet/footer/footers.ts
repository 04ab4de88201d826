import type { SourceColumn } from "../../../columnar/types.js";
import type { Footer } from "./footer.js";
import { readFooter } from "./read-footer.js";
import { reservedName, rowNumberColumn } from "../../sql/slice-sql.js";
import { plainColumns } from "../pages/storage.js";
import type { ShardFile, ShardFooter, ShardSchema } from "../../port.js";

/** Files a query; one by one costs ten times as much. Bounds memory too. */
const filesPerQuery = 256;
/** Files that are open at once. */
const filesAtOnce = 16;

/** The facts of a footer that are kept while others are read: few, since there may be many files. */
interface FileFacts extends Omit<ShardFooter, "schema"> {
  /** undefined: DuckDB is asked. */
  readonly schema: ShardSchema | undefined;
}

/** Determines the columns of files whose footer is not enough for that. */
export interface SchemaReader {
  /**
   * Returns digests, by path, of everything in a footer that the columns' types can depend on. @throws JobError
   * SHARD_CORRUPT
   */
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
    // This program reads the file first, because its errors are clearer and name the file.
    const facts = await readFacts(files.slice(start, start + filesPerQuery), schemas);
    const unknown = facts.flatMap(({ path, schema }) => (schema === undefined ? [path] : []));
    const digests = unknown.length === 0 ? undefined : await (await reader()).digests(unknown);
    for (const fact of facts) {
      const { path } = fact;
      yield {
        ...fact,
        schema: fact.schema ?? (await schemaByDuckDb(reader, { path, digest: digests?.get(path) }, schemas)),
      };
    }
  }
}

async function schemaByDuckDb(
  reader: () => Promise<SchemaReader>,
  { path, digest }: { path: string; digest: string | undefined },
  schemas: Map<string, ShardSchema>,
): Promise<ShardSchema> {
  if (digest === undefined) {
    throw new Error(`DuckDB gave no schema for ${path}`);
  }
  const met = schemas.get(digest) ?? checkedSchema(path, await (await reader()).columns(path));
  schemas.set(digest, met);
  return met;
}

async function readFacts(files: readonly ShardFile[], schemas: Map<string, ShardSchema>): Promise<FileFacts[]> {
  const facts: FileFacts[] = [];
  for (let start = 0; start < files.length; start += filesAtOnce) {
    const some = files.slice(start, start + filesAtOnce);
    facts.push(...(await Promise.all(some.map(async (file) => summary(file.path, await readFooter(file), schemas)))));
  }
  return facts;
}

function summary(path: string, footer: Footer, schemas: Map<string, ShardSchema>): FileFacts {
  const { rows, rowGroups, leaves, sizeBytes } = footer;
  const closed = rowGroups.flatMap(({ chunks }) => chunks.filter(({ encrypted }) => encrypted));
  const encrypted = [...new Set(closed.map((chunk) => chunk.path[0] ?? ""))];
  const columns = footer.encrypted || encrypted.length > 0 ? undefined : plainColumns(leaves);
  const schema = columns && plainSchema(path, columns, schemas);
  return { path, rows, rowGroups: rowGroups.length, sizeBytes, encrypted, schema, nulls: statedNulls(footer) };
}

function statedNulls({ rowGroups }: Footer): ReadonlyMap<string, number> {
  const nulls = new Map<string, number>();
  for (const { rows, chunks } of rowGroups) {
    for (const { path, nulls: stated = 0 } of chunks) {
      const [column = "", ...inner] = path;
      if (stated > 0 && stated <= rows && inner.length === 0) {
        nulls.set(column, (nulls.get(column) ?? 0) + stated);
      }
    }
  }
  return nulls;
}

function plainSchema(path: string, columns: readonly SourceColumn[], schemas: Map<string, ShardSchema>): ShardSchema {
  const digest = JSON.stringify(columns);
  const met = schemas.get(digest) ?? checkedSchema(path, columns);
  schemas.set(digest, met);
  return met;
}

function checkedSchema(path: string, columns: readonly SourceColumn[]): ShardSchema {
  if (columns.some(({ name }) => name.toLowerCase() === rowNumberColumn)) {
    throw reservedName(path);
  }
  return { columns };
}
