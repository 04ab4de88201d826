import type { DuckDBDataChunk } from "@duckdb/node-api";
import { boundColumns, type InputBinding } from "../batch/contract.js";
import { selectRows } from "../batch/select-rows.js";
import { tensorElement } from "../batch/tensor.js";
import type { BytesColumn, Matrix, RecordBatch } from "../batch/types.js";
import { firstLine, openDuckDb, quoteText } from "../duckdb/instance.js";
import { type ConnectionPool, connectionPool } from "../duckdb/pool.js";
import { readColumn, readFlat, readMatrix } from "../duckdb/read-vector.js";
import { JobError, messageOf } from "../errors.js";
import { columnSql } from "./cast-sql.js";
import { rowStateSql } from "./expression-sql.js";
import { readFooters } from "./parquet-footers.js";
import { bindExpression, createExpressionCheck, describeFailure, type ExpressionCheck } from "./parquet-expressions.js";
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
  const check = createExpressionCheck(pool);
  return {
    footers: (paths) => readFooters(pool, paths),
    read: (slice) => readSlice(pool, check, slice),
    bindExpression: (request) => bindExpression(pool, check, request),
    describeRows: (request) => describeRows(pool, check, request),
    describeFailure: (request) => describeFailure(pool, check, request),
    async [Symbol.asyncDispose]() {
      pool.close();
      duckdb[Symbol.dispose]();
    },
  };
}

async function* readSlice(
  pool: ConnectionPool,
  check: ExpressionCheck,
  slice: SliceRequest,
): AsyncGenerator<RecordBatch> {
  await check.all(slice.projection.expressions);
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

function recordBatch(chunk: DuckDBDataChunk, projection: Projection): RecordBatch {
  const { inputs, passthrough, expressions } = projection;
  const first = expressions === null ? 1 : 2;
  const batch = {
    rowCount: chunk.rowCount,
    inputs: inputs.map((binding, index) => readInput(chunk, index + first, binding)),
    carried: passthrough.map(({ source }, index) => readColumn(chunk, index + first + inputs.length, source.type)),
  };
  return expressions === null ? batch : selectRows(batch, readStates(chunk), projection);
}

function readStates(chunk: DuckDBDataChunk): Uint16Array {
  const { data } = readFlat(chunk, 1, "uint16");
  if (!(data instanceof Uint16Array)) {
    throw new TypeError("states of rows are 16-bit numbers");
  }
  return data;
}

function readInput(chunk: DuckDBDataChunk, index: number, binding: InputBinding): Matrix | BytesColumn {
  if (binding.kind === "text") {
    const column = readColumn(chunk, index, "utf8");
    if (column.kind !== "bytes") {
      throw new TypeError("a text column is read as bytes");
    }
    return column;
  }
  const element = binding.dtype === "float16" ? "float32" : tensorElement(binding.dtype);
  const width = binding.kind === "list" ? binding.width : binding.columns.length;
  return width === 1 && binding.kind === "matrix"
    ? readFlat(chunk, index, element)
    : readMatrix(chunk, index, element, width);
}

/** A stream that meets an error just ends. Reading the same columns again without a stream gives its text. */
async function explainMissingRows(pool: ConnectionPool, slice: SliceRequest, reached: number): Promise<JobError> {
  const { path, projection, partitions } = slice;
  const { expressions } = projection;
  const counts = boundColumns(projection).map((ref) => `count(${columnSql(ref, partitions)})`);
  if (expressions !== null) {
    counts.push(`count(${rowStateSql(expressions)})`); // for the columns that only a filter uses
  }
  const from = fromRows({ path, expressions, partitions }, inSlice(slice));
  try {
    await pool.use((connection) => connection.run(`SELECT ${["count(*)", ...counts].join(", ")} ${from}`));
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
  check: ExpressionCheck,
  request: Parameters<Decoder["describeRows"]>[0],
): ReturnType<Decoder["describeRows"]> {
  const { rows, columns, partitions } = request;
  await check.all(request.expressions);
  const texts = columns.map((column) => `CAST(${columnSql(column, partitions)} AS VARCHAR)`);
  const condition = `${rowNumberColumn} IN (${rows.join(", ")})`;
  const sql = `SELECT ${[rowNumberColumn, ...texts].join(", ")} ${fromRows(request, condition)}`;
  const found = await pool.use(async (connection) => (await connection.runAndReadAll(sql)).getRows());
  return new Map(
    found.map(([row, ...values]) => [Number(row), values.map((value) => (typeof value === "string" ? value : null))]),
  );
}
