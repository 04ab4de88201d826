import type { SourceColumn } from "../../columnar/types.js";
import { createConnectionPool, type DuckDBConnection, openDuckDb } from "../../duckdb/instance.js";
import { exactGlob, firstLine, quotePaths } from "../../duckdb/sql.js";
import { JobError, messageOf } from "../../util/errors.js";
import { readFooters } from "./footers.js";
import { schemaReader } from "./duckdb.js";
import type { ShardColumn, ShardDetails } from "../port.js";

/**
 * Reads the facts about one Parquet file from its footer. No row is read.
 * @param path absolute
 * @throws JobError SHARD_CORRUPT, SCHEMA_MISMATCH
 */
export async function inspectParquet(path: string): Promise<ShardDetails> {
  // DuckDB checks the glob itself, then the file that it finds. For a link it checks the link, unlike in a folder that
  // is allowed, where it checks what the link leads to.
  using duckdb = await openDuckDb({ threads: 1, allowed: { files: [path, exactGlob(path)] } });
  const pool = createConnectionPool(duckdb);
  try {
    for await (const { schema, ...footer } of readFooters(
      () => Promise.resolve(schemaReader(pool)),
      [{ path, name: path }],
    )) {
      return await pool.use(async (connection) => {
        const chunks = await readChunks(connection, path);
        const leafRanges = await readLeafRanges(connection, path);
        const columns = schema.columns.map((column, index) =>
          describeColumn(column, leafRanges[index], { chunks, rows: footer.rows }),
        );
        return { ...footer, ...(await readFacts(connection, path)), columns };
      });
    }
    throw new Error(`no footer came for ${path}`);
  } finally {
    pool.close();
  }
}

/** What all row groups have of one leaf of the schema. */
interface LeafChunks {
  readonly compressedBytes: number;
  readonly uncompressedBytes: number;
  readonly codecs: readonly string[];
  /** null: a row group has no statistics. */
  readonly nulls: number | null;
}

/** The chunks of a leaf in a file without row groups. */
const noChunks: LeafChunks = { compressedBytes: 0, uncompressedBytes: 0, codecs: [], nulls: 0 };

/** Reads the chunks of each leaf, by its index in the schema. */
async function readChunks(connection: DuckDBConnection, path: string): Promise<Map<number, LeafChunks>> {
  const rows = await query(
    connection,
    path,
    `SELECT column_id, sum(total_compressed_size), sum(total_uncompressed_size),
       string_agg(DISTINCT lower(compression), ',' ORDER BY lower(compression)),
       CASE WHEN count(stats_null_count) = count(*) THEN sum(stats_null_count) END
     FROM parquet_metadata(${quotePaths([path])}) GROUP BY column_id`,
  );
  return new Map(
    rows.map(([leaf, compressed, uncompressed, codecs, nulls]) => [
      Number(leaf),
      {
        compressedBytes: Number(compressed),
        uncompressedBytes: Number(uncompressed),
        codecs: String(codecs).split(","),
        nulls: nulls === null ? null : Number(nulls),
      },
    ]),
  );
}

/** Where a column of the table is in the file. */
interface LeafRange {
  /** [leafStart, leafEnd) of the schema. */
  readonly leafStart: number;
  readonly leafEnd: number;
  /** Whether its NULLs are those of its leaf (a list's leaf counts its elements'), or cannot be at all. */
  readonly nullsOf: "leaf" | "none" | "unknown";
}

/** Reads the leaves of each column of the table. The schema is a tree, written parents first. */
async function readLeafRanges(connection: DuckDBConnection, path: string): Promise<LeafRange[]> {
  const rows = await query(
    connection,
    path,
    `SELECT type IS NOT NULL, coalesce(num_children, 0), repetition_type
     FROM parquet_schema(${quotePaths([path])}) ORDER BY column_id`,
  );
  const leafRanges: LeafRange[] = [];
  let leaves = 0;
  // The first row is the root, which is the table.
  for (let at = 1; at < rows.length; ) {
    const top = rows[at];
    const leafStart = leaves;
    for (let missing = 1; missing > 0 && at < rows.length; at += 1) {
      const [isLeaf, children] = rows[at] ?? [];
      leaves += isLeaf === true ? 1 : 0;
      missing += (isLeaf === true ? 0 : Number(children)) - 1;
    }
    const nullsOf = top?.[2] === "REQUIRED" ? "none" : top?.[0] === true && top[2] === "OPTIONAL" ? "leaf" : "unknown";
    leafRanges.push({ leafStart, leafEnd: leaves, nullsOf });
  }
  return leafRanges;
}

function describeColumn(
  { name, sourceType }: SourceColumn,
  place: LeafRange | undefined,
  { chunks, rows }: { chunks: ReadonlyMap<number, LeafChunks>; rows: number },
): ShardColumn {
  const { leafStart = 0, leafEnd = 0, nullsOf = "unknown" } = place ?? {};
  const own: LeafChunks[] = [];
  for (let leaf = leafStart; leaf < leafEnd; leaf += 1) {
    own.push(chunks.get(leaf) ?? noChunks);
  }
  const counted = nullsOf === "leaf" ? (own[0]?.nulls ?? null) : nullsOf === "none" || rows === 0 ? 0 : null;
  return {
    name,
    type: sourceType,
    // Damaged statistics are none.
    nulls: counted !== null && counted >= 0 && counted <= rows ? counted : null,
    codecs: [...new Set(own.flatMap(({ codecs }) => codecs))].toSorted(),
    compressedBytes: own.reduce((sum, { compressedBytes }) => sum + compressedBytes, 0),
    uncompressedBytes: own.reduce((sum, { uncompressedBytes }) => sum + uncompressedBytes, 0),
  };
}

async function readFacts(
  connection: DuckDBConnection,
  path: string,
): Promise<Pick<ShardDetails, "footerBytes" | "createdBy" | "formatVersion" | "rowGroupRows" | "metadataKeys">> {
  const list = quotePaths([path]);
  const [file] = await query(
    connection,
    path,
    `SELECT footer_size, created_by, format_version FROM parquet_file_metadata(${list})`,
  );
  const [groups] = await query(
    connection,
    path,
    `SELECT min(row_group_num_rows), max(row_group_num_rows) FROM parquet_metadata(${list})`,
  );
  const keys = await query(
    connection,
    path,
    `SELECT coalesce(try(decode(key)), key::VARCHAR) FROM parquet_kv_metadata(${list})`,
  );
  const [footerBytes, createdBy, formatVersion] = file ?? [];
  const [min, max] = groups ?? [];
  return {
    footerBytes: Number(footerBytes),
    createdBy: typeof createdBy === "string" && createdBy !== "" ? createdBy : null,
    formatVersion: Number(formatVersion),
    rowGroupRows: typeof min === "bigint" && typeof max === "bigint" ? { min: Number(min), max: Number(max) } : null,
    metadataKeys: keys.map(([key]) => String(key)),
  };
}

async function query(connection: DuckDBConnection, path: string, sql: string): Promise<(readonly unknown[])[]> {
  try {
    return (await connection.runAndReadAll(sql)).getRows();
  } catch (error) {
    throw new JobError("SHARD_CORRUPT", `reading the footer of ${path}: ${firstLine(messageOf(error))}`, {
      hint: "the file is damaged or not Parquet; write it again",
      cause: error,
    });
  }
}
