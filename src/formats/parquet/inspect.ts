import { realpath } from "node:fs/promises";
import { dirname } from "node:path";
import type { SourceColumn } from "../../columns/types.js";
import type { ShardColumn, ShardDetails } from "../format.js";
import { type Footer, readParquetFooter } from "./footer.js";

/** The codecs of parquet.thrift, by their numbers. */
const codecNames = ["uncompressed", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw"];

/**
 * Reads the facts about one Parquet file from its footer. No row is read.
 * @param path absolute
 * @throws JobError SHARD_CORRUPT, SCHEMA_MISMATCH
 */
export async function inspectParquet(path: string): Promise<ShardDetails> {
  // DuckDB is allowed to read one folder, where what a link leads to may not be.
  const file = { path: await realpath(path).catch(() => path), name: path };
  const { openParquetDecoder } = await import("./decoder.js"); // as the commands do that read rows
  await using decoder = openParquetDecoder({ threads: 1, folders: [dirname(file.path)], timezone: "UTC" });
  for await (const { schema, rows, rowGroups, sizeBytes } of decoder.footers([file])) {
    const footer = await readParquetFooter(file);
    const groupRows = footer.rowGroups.map((group) => group.rows).toSorted((one, other) => one - other);
    const [min, max] = [groupRows[0], groupRows.at(-1)];
    return {
      path,
      rows,
      rowGroups,
      sizeBytes,
      footerBytes: footer.footerBytes,
      createdBy: footer.createdBy === "" ? null : footer.createdBy,
      formatVersion: footer.version,
      rowGroupRows: min === undefined || max === undefined ? null : { min, max },
      metadataKeys: [...footer.metadata.keys()],
      columns: schema.columns.map((column, index) => describeColumn(column, index, footer)),
    };
  }
  throw new Error(`no footer came for ${path}`);
}

function describeColumn({ name, sourceType }: SourceColumn, index: number, footer: Footer): ShardColumn {
  const { leaves, rowGroups } = footer;
  const chunks = rowGroups.flatMap((group) => group.chunks.filter((_, at) => leaves[at]?.column === index));
  return {
    name,
    type: sourceType,
    nulls: nullsOf(index, footer),
    codecs: [...new Set(chunks.map(({ codec }) => codecNames[codec] ?? `codec ${codec}`))].toSorted(),
    compressedBytes: chunks.reduce((sum, { compressedBytes }) => sum + compressedBytes, 0),
    uncompressedBytes: chunks.reduce((sum, { uncompressedBytes }) => sum + uncompressedBytes, 0),
  };
}

/** The NULLs of a column as all row groups state them; null: unknown, or damaged. A list's leaf counts those of its elements. */
function nullsOf(index: number, { rows, leaves, rowGroups }: Footer): number | null {
  const place = leaves.findIndex(({ column }) => column === index);
  const leaf = leaves[place];
  if (rows === 0 || (leaf?.path.length === 1 && leaf.definition === 0)) {
    return 0;
  }
  const stated = rowGroups.map(({ chunks }) => chunks[place]?.nulls ?? Number.NaN);
  const nulls = leaf?.path.length === 1 && leaf.repetition === 0 ? stated.reduce((sum, count) => sum + count, 0) : -1;
  return nulls >= 0 && nulls <= rows ? nulls : null;
}
