import type { DuckDBDataChunk } from "@duckdb/node-api";
import type { InputBinding } from "../batch/contract.js";
import { tensorElement } from "../batch/tensor.js";
import type { BytesColumn, Matrix, RecordBatch } from "../batch/types.js";
import { firstLine, openDuckDb, quoteText } from "../duckdb/instance.js";
import { type ConnectionPool, connectionPool } from "../duckdb/pool.js";
import { readColumn, readFlat, readMatrix } from "../duckdb/read-vector.js";
import { JobError, messageOf } from "../errors.js";
import { columnSql } from "./cast-sql.js";
import { readFooters } from "./parquet-footers.js";
import { fromRows, inSlice, rowNumberColumn, sliceSql } from "./parquet-sql.js";
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
    describeRows: (request) => describeRows(pool, request),
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
      yield recordBatch(chunk, slice.projection);
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
  const numbers = readFlat(chunk, 0, "int64").data;
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

function recordBatch(chunk: DuckDBDataChunk, { inputs, passthrough }: Projection): RecordBatch {
  return {
    rowCount: chunk.rowCount,
    inputs: inputs.map((binding, index) => readInput(chunk, index + 1, binding)),
    carried: passthrough.map(({ source }, index) => readColumn(chunk, index + 1 + inputs.length, source.type)),
  };
}

function readInput(chunk: DuckDBDataChunk, index: number, binding: InputBinding): Matrix | BytesColumn {
  if (binding.kind === "text") {
    const column = readColumn(chunk, index, "utf8");
    if (column.kind !== "bytes") {
      throw new TypeError("a text column is read as bytes");
    }
    return column;
  }
  const element = binding.dtype === "float16" ? "float64" : tensorElement(binding.dtype);
  const width = binding.kind === "list" ? binding.width : binding.columns.length;
  return width === 1 && binding.kind === "matrix"
    ? readFlat(chunk, index, element)
    : readMatrix(chunk, index, element, width);
}

/** A stream that meets an error just ends. Reading the same columns again without a stream gives its text. */
async function explainMissingRows(pool: ConnectionPool, slice: SliceRequest, reached: number): Promise<JobError> {
  const { inputs, passthrough } = slice.projection;
  const refs = [
    ...inputs.flatMap((binding) => (binding.kind === "matrix" ? binding.columns : [binding.column])),
    ...passthrough.map(({ source }) => source),
  ];
  const counts = refs.map((ref) => `count(${columnSql(ref, slice.partitions)})`);
  try {
    await pool.use((connection) =>
      connection.run(`SELECT ${counts.join(", ")} ${fromRows(slice.path, inSlice(slice))}`),
    );
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
  if (message.startsWith("Permission Error")) {
    return new JobError("PERMISSION", `reading ${path}: ${message}`, { hint: "grant read permission", cause: error });
  }
  return new JobError("SHARD_CORRUPT", `reading ${path}: ${message}`, {
    hint: "the shard is damaged or not Parquet; write it again. Committed spans are kept",
    cause: error,
  });
}

async function describeRows(
  pool: ConnectionPool,
  { path, rows, columns, partitions }: Parameters<Decoder["describeRows"]>[0],
): ReturnType<Decoder["describeRows"]> {
  const texts = columns.map((column) => `CAST(${columnSql(column, partitions)} AS VARCHAR)`);
  const condition = `${rowNumberColumn} IN (${rows.join(", ")})`;
  const sql = `SELECT ${[rowNumberColumn, ...texts].join(", ")} ${fromRows(path, condition)}`;
  const found = await pool.use(async (connection) => (await connection.runAndReadAll(sql)).getRows());
  return new Map(
    found.map(([row, ...values]) => [Number(row), values.map((value) => (typeof value === "string" ? value : null))]),
  );
}
