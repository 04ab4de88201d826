import type { DuckDBDataChunk } from "@duckdb/node-api";
import type { Column, RecordBatch } from "../batch/types.js";
import { firstLine, openDuckDb, quoteName, quotePath, quoteText } from "../duckdb/instance.js";
import { type ConnectionPool, connectionPool } from "../duckdb/pool.js";
import { flatView, listChildView } from "../duckdb/vectors.js";
import { JobError, messageOf } from "../errors.js";
import { readFooters } from "./parquet-footers.js";
import { rowNumberColumn, sliceSql } from "./parquet-sql.js";
import type { Decoder, Projection, SliceRequest } from "./port.js";

export interface ParquetDecoderOptions {
  readonly threads: number;
  /** The folders that shards may be read from; nothing else can be. */
  readonly folders: readonly string[];
  readonly timezone: string;
}

/** The slice that is read and the one after it. */
const streams = 2;

/** Parquet through DuckDB: its native threads decode and cast ahead of us into a bounded buffer. */
export async function openParquetDecoder({ threads, folders, timezone }: ParquetDecoderOptions): Promise<Decoder> {
  const duckdb = await openDuckDb({
    threads,
    allowed: { folders },
    settings: { TimeZone: quoteText(timezone) },
    prepared: { connections: streams, settings: { streaming_buffer_size: "'16MB'" } },
  });
  const pool = connectionPool(duckdb);
  return {
    footers: (paths) => readFooters(pool, paths),
    read: (slice) => readSlice(pool, slice),
    describeRow: (path, row, columns) => describeRow(pool, path, row, columns),
    async [Symbol.asyncDispose]() {
      pool.close();
      duckdb[Symbol.dispose]();
    },
  };
}

async function* readSlice(pool: ConnectionPool, slice: SliceRequest): AsyncGenerator<RecordBatch> {
  const connection = await pool.take();
  let finished = false;
  let next = slice.rowStart;
  try {
    const result = await connection.stream(sliceSql(slice));
    for (;;) {
      const chunk = await result.fetchChunk();
      if (chunk === null || chunk.rowCount === 0) {
        break;
      }
      checkRowNumbers(chunk, next, slice);
      next += chunk.rowCount;
      yield { rowCount: chunk.rowCount, columns: columnsOf(chunk, slice.projection) };
    }
    finished = true;
  } catch (error) {
    throw corrupt(slice.path, error);
  } finally {
    if (finished) {
      pool.giveBack(connection);
    } else {
      connection.closeSync(); // a stream that was left in the middle must not be met by the next query
    }
  }
  if (next !== slice.rowEnd) {
    throw await explainMissingRows(pool, slice, next);
  }
}

/** Rows come in file order without a gap, whatever DuckDB's threads do: a batch starts where the last one ended. */
function checkRowNumbers(chunk: DuckDBDataChunk, expected: number, slice: SliceRequest): void {
  const numbers = flatView(chunk, 0, "int64").data;
  const first = Number(numbers[0]);
  const last = Number(numbers[chunk.rowCount - 1]);
  if (first !== expected || last !== expected + chunk.rowCount - 1 || last >= slice.rowEnd) {
    throw new JobError(
      "SHARD_CORRUPT",
      `reading ${slice.path}: rows ${first}..${last} came where row ${expected} and the ${chunk.rowCount - 1} after it were expected`,
      { hint: "the file's row groups do not agree with its footer; write the shard again" },
    );
  }
}

function columnsOf(chunk: DuckDBDataChunk, projection: Projection): Column[] {
  return projection.map((column, index): Column => {
    if (column.kind === "plain") {
      return { type: column.type, width: 1, ...flatView(chunk, index + 1, column.type) };
    }
    const width = column.binding.columns.length;
    return { type: "float32", width, ...listChildView(chunk, index + 1, "float32", width) };
  });
}

/** A stream that meets an error just ends. Reading the same columns again without a stream gives its text. */
async function explainMissingRows(pool: ConnectionPool, slice: SliceRequest, reached: number): Promise<JobError> {
  const names = slice.projection.flatMap((column) =>
    column.kind === "plain" ? [column.column] : column.binding.columns.map(({ name }) => name),
  );
  const sums = names.map((name) => `count(${quoteName(name)})`);
  const sql = `SELECT ${sums.join(", ")} FROM read_parquet(${quotePath(slice.path)}, file_row_number = true, hive_partitioning = false)
    WHERE ${rowNumberColumn} >= ${slice.rowStart} AND ${rowNumberColumn} < ${slice.rowEnd}`;
  try {
    await pool.use((connection) => connection.run(sql));
  } catch (error) {
    return corrupt(slice.path, error);
  }
  return new JobError(
    "SHARD_CORRUPT",
    `reading ${slice.path}: it gave rows ${slice.rowStart}..${reached - 1}, but its footer promises rows up to ${slice.rowEnd - 1}`,
    { hint: "the shard is damaged; write it again" },
  );
}

function corrupt(path: string, error: unknown): JobError {
  if (error instanceof JobError) {
    return error;
  }
  const message = firstLine(messageOf(error));
  if (message.startsWith("Out of Memory Error")) {
    return new JobError("MEMORY", `reading ${path}: ${message}`, { hint: "give the job more memory", cause: error });
  }
  return new JobError("SHARD_CORRUPT", `reading ${path}: ${message}`, {
    hint: "the shard is damaged or not Parquet; write it again. Committed spans are kept",
    cause: error,
  });
}

async function describeRow(
  pool: ConnectionPool,
  path: string,
  row: number,
  columns: readonly string[],
): Promise<(string | null)[]> {
  const texts = columns.map((name) => `CAST(${quoteName(name)} AS VARCHAR)`);
  const sql = `SELECT ${texts.join(", ")} FROM read_parquet(${quotePath(path)}, file_row_number = true, hive_partitioning = false)
    WHERE ${rowNumberColumn} = ${row}`;
  const rows = await pool.use(async (connection) => (await connection.runAndReadAll(sql)).getRows());
  return columns.map((_name, index) => {
    const value = rows[0]?.[index];
    return typeof value === "string" ? value : null;
  });
}
