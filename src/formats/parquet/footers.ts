import { mapBounded } from "../../base/promises.js";
import type { SourceColumn, TableRows } from "../../columns/types.js";
import { tableSchema } from "./table-columns.js";
import { type Footer, isNotInTable, type Leaf, readParquetFooter, sparkKeys } from "./footer.js";
import { refuseNames } from "../sql/slice-sql.js";
import { plainColumns } from "./pages/storage.js";
import type { LegacyDates, ShardFile, ShardFooter, ShardSchema } from "../format.js";

/** Files a query; one by one costs ten times as much. Bounds memory too. */
const filesPerQuery = 256;
const filesAtOnce = 16;

/** The facts of a footer that are kept while others are read: few, since there may be many files. */
interface FileFacts extends Omit<ShardFooter, "schema"> {
  readonly file: ShardFile;
  /** undefined: DuckDB is asked. */
  readonly columns: readonly SourceColumn[] | undefined;
  readonly select: Footer["select"];
  readonly unfit: Footer["unfit"];
  readonly legacyDates: readonly LegacyDates[];
}

/** Determines the columns of files whose footer is not enough for that. */
export interface SchemaReader {
  /** Digests, by path, of all in a footer that the columns' types can depend on. @throws JobError SHARD_CORRUPT */
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
  const schemaOf = async (digest: string, make: () => ShardSchema | Promise<ShardSchema>): Promise<ShardSchema> => {
    const schema = schemas.get(digest) ?? (await make());
    schemas.set(digest, schema);
    return schema;
  };
  /** Files that store the columns of a table otherwise have the same columns in it. */
  const ofTable = (
    { columns: stored, legacyDates }: ShardSchema,
    { columns }: TableRows,
    { unfit, digest }: { readonly unfit: Footer["unfit"]; readonly digest: string },
  ): Promise<ShardSchema> =>
    schemaOf(`table ${digest}`, () => {
      const schema = { columns: tableSchema(stored, columns, unfit), legacyDates };
      return schemaOf(JSON.stringify(["table", schema]), () => schema);
    });
  for (let start = 0; start < files.length; start += filesPerQuery) {
    // This program reads the file first, because its errors are clearer and name the file.
    const facts = await mapBounded(files.slice(start, start + filesPerQuery), filesAtOnce, async (file) =>
      summary(file, await readParquetFooter(file)),
    );
    const unknown = facts.flatMap(({ path, columns }) => (columns === undefined ? [path] : []));
    const digests = unknown.length === 0 ? undefined : await (await reader()).digests(unknown);
    for (const { file, columns, select, unfit, legacyDates, ...fact } of facts) {
      const digest = JSON.stringify([columns ?? digests?.get(fact.path), select, unfit, legacyDates]);
      const stored = await schemaOf(digest, async () => ({
        columns: columns ?? (await columnsOf(await reader(), file)),
        legacyDates,
      }));
      yield {
        ...fact,
        schema: file.table === undefined ? stored : await ofTable(stored, file.table, { unfit, digest }),
      };
    }
  }
}

async function columnsOf(reader: SchemaReader, file: ShardFile): Promise<readonly SourceColumn[]> {
  const { leaves } = await readParquetFooter(file);
  const columns = await reader.columns(file.path, leaves);
  if (file.table === undefined) {
    return columns;
  }
  const names = new Map(leaves.map(({ column, path }) => [column, path[0]]));
  return columns.map((column, index) => Object.assign({}, column, { name: names.get(index) ?? column.name }));
}

function summary(file: ShardFile, footer: Footer): FileFacts {
  const { path } = file;
  const { rows, rowGroups, leaves: all, sizeBytes, select } = footer;
  const leaves = all.filter((leaf) => !isNotInTable(leaf));
  refuseNames(path, new Set(leaves.map((leaf) => leaf.path[0] ?? "")), footer.double);
  const closed = rowGroups.flatMap(({ chunks }) => chunks.filter(({ encrypted }) => encrypted));
  const encrypted = [...new Set(closed.map((chunk) => chunk.path[0] ?? ""))];
  const columns = footer.encrypted || encrypted.length > 0 ? undefined : plainColumns(leaves);
  const [legacyDates, nulls] = [legacyDatesOf(footer), statedNulls(footer)];
  const ofTable = { select, unfit: footer.unfit };
  return {
    file,
    path,
    rows,
    rowGroups: rowGroups.length,
    sizeBytes,
    encrypted,
    columns,
    ...ofTable,
    legacyDates,
    nulls,
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
