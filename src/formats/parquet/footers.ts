import type { SourceColumn } from "../../columnar/types.js";
import { type Footer, type Double, type Leaf, readFooter, sparkKeys } from "./footer.js";
import { reservedName, rowNumberColumn } from "../sql/slice-sql.js";
import { isPlainName, plainColumns } from "./pages/storage.js";
import type { LegacyDates, ShardFile, ShardFooter, ShardSchema, UnreadableColumn } from "../port.js";

/** Files a query; one by one costs ten times as much. Bounds memory too. */
const filesPerQuery = 256;
/** Files that are open at once. */
const filesAtOnce = 16;

/** The facts of a footer that are kept while others are read: few, since there may be many files. */
interface FileFacts extends Omit<ShardFooter, "schema"> {
  /** undefined: DuckDB is asked. */
  readonly schema: ShardSchema | undefined;
  readonly legacyDates: readonly LegacyDates[];
}

/** Determines the columns of files whose footer is not enough for that. */
export interface SchemaReader {
  /**
   * Returns digests, by path, of everything in a footer that the columns' types can depend on. @throws JobError
   * SHARD_CORRUPT
   */
  digests(paths: readonly string[]): Promise<ReadonlyMap<string, string>>;
  /** Columns with the names that DuckDB gives them. @throws JobError SHARD_CORRUPT */
  columns(path: string, leaves: readonly Leaf[]): Promise<readonly SourceColumn[]>;
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
    for (const [index, { legacyDates, ...fact }] of facts.entries()) {
      const file = files[start + index] ?? fact;
      const found = digests?.get(fact.path);
      const digest = found && `${found} ${JSON.stringify(legacyDates)}`;
      yield { ...fact, schema: fact.schema ?? (await schemaByDuckDb(reader, { file, digest }, schemas)) };
    }
  }
}

async function schemaByDuckDb(
  reader: () => Promise<SchemaReader>,
  { file, digest }: { file: Pick<ShardFile, "path" | "remote">; digest: string | undefined },
  schemas: Map<string, ShardSchema>,
): Promise<ShardSchema> {
  const { path } = file;
  if (digest === undefined) {
    throw new Error(`DuckDB gave no schema for ${path}`);
  }
  const met = schemas.get(digest);
  if (met !== undefined) {
    return met;
  }
  const footer = await readFooter(file);
  const found = await (await reader()).columns(path, footer.leaves);
  const schema = namedSchema(path, found, footer);
  schemas.set(digest, schema);
  return schema;
}

/** Gives columns their names in the file: DuckDB renames those that only case tells from another one. */
function namedSchema(path: string, found: readonly SourceColumn[], footer: Footer): ShardSchema {
  const { leaves, doubles } = footer;
  const names = new Map(leaves.map((leaf) => [leaf.column, leaf.path[0] ?? ""]));
  const columns = found.map((column, index) => {
    const name = names.get(index) ?? "";
    return names.size === found.length && isPlainName(name) ? { ...column, name } : column;
  });
  return checkedSchema(path, {
    columns,
    unreadable: [...doubles.map(unreadable), ...doubles.flatMap((double) => renamed(double, leaves))],
    legacyDates: legacyDatesOf(footer),
  });
}

function unreadable({ path, other }: Double): UnreadableColumn {
  const isSame = path.at(-1) === other;
  const why = isSame ? "has the name of another one" : `differs from \`${other}\` in upper and lower case only`;
  return { path, why };
}

/**
 * Columns or fields with a name that DuckDB may give to a double beside them: it calls the second of `a` and `A` `A_1`,
 * and an `a_1` after that `a_1_1`.
 */
function renamed({ path, other }: Double, leaves: readonly Leaf[]): UnreadableColumn[] {
  const parent = path.slice(0, -1);
  const why = `has a name that the reader needs, since another one is called \`${other}\` twice, ignoring case`;
  const beside = leaves
    .filter((leaf) => parent.every((step, index) => leaf.path[index] === step))
    .map((leaf) => leaf.path.slice(0, path.length));
  const ends = (steps: readonly string[]): string | undefined => {
    const name = steps.at(-1)?.toLowerCase();
    return name?.startsWith(other.toLowerCase()) === true ? name.slice(other.length) : undefined;
  };
  const doubles = beside.filter((steps) => ends(steps) === "").length;
  return beside
    .filter((steps) => Number(/^_([1-9]\d*)(?:_\d+)*$/.exec(ends(steps) ?? "")?.[1]) < doubles)
    .map((steps) => ({ path: steps, why }));
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
  const legacyDates = legacyDatesOf(footer);
  const schema = columns && plainSchema(path, { columns, unreadable: [], legacyDates }, schemas);
  return {
    path,
    rows,
    rowGroups: rowGroups.length,
    sizeBytes,
    encrypted,
    schema,
    legacyDates,
    nulls: statedNulls(footer),
  };
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

/** The columns that Spark says to have written in its older calendar. */
function legacyDatesOf({ leaves, metadata }: Footer): LegacyDates[] {
  const timeZone = metadata.get(sparkKeys.timeZone) ?? "";
  return leaves.flatMap(({ path: [column = ""], type, annotation }) => {
    const isDated = annotation === "date" || annotation.startsWith("timestamp");
    const key = type === int96 ? sparkKeys.int96 : isDated ? sparkKeys.dateTime : undefined;
    return key !== undefined && metadata.has(key) ? [{ column, key, timeZone }] : [];
  });
}

/** The number of a physical type of parquet.thrift. */
const int96 = 3;

function plainSchema(path: string, schema: ShardSchema, schemas: Map<string, ShardSchema>): ShardSchema {
  const digest = JSON.stringify(schema);
  const met = schemas.get(digest) ?? checkedSchema(path, schema);
  schemas.set(digest, met);
  return met;
}

function checkedSchema(path: string, schema: ShardSchema): ShardSchema {
  if (schema.columns.some(({ name }) => name.toLowerCase() === rowNumberColumn)) {
    throw reservedName(path);
  }
  return schema;
}
