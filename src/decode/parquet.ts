import type { DuckDBDataChunk } from "@duckdb/node-api";
import type { InputBinding } from "../batch/contract.js";
import { selectRows } from "../batch/select-rows.js";
import { tensorElement } from "../batch/tensor.js";
import type { BytesColumn, Matrix, RecordBatch } from "../batch/types.js";
import { openDuckDb, quoteText } from "../duckdb/instance.js";
import { type ConnectionPool, connectionPool } from "../duckdb/pool.js";
import { readColumn, readFlat, readMatrix } from "../duckdb/read-vector.js";
import { JobError } from "../errors.js";
import { describeRows } from "./describe-rows.js";
import { namingDecoder } from "./naming.js";
import { findDamage, type StreamEnd } from "./parquet-damage.js";
import { readFooters } from "./parquet-footers.js";
import { bindExpression, createExpressionCheck, describeFailure, type ExpressionCheck } from "./parquet-expressions.js";
import { verifyPages } from "./parquet-pages.js";
import { parquetTable, sliceSql } from "./parquet-sql.js";
import { sliceWindows } from "./parquet-windows.js";
import type { Decoder, Projection, SliceRequest } from "./port.js";
import { parquetTables } from "./shard-tables.js";
import { decodingThreads } from "./threads.js";

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
  const opened = new Map<number, Promise<Reader>>();
  /** DuckDB's threads are fixed when it is opened. */
  const readerOf = (count: number): Promise<Reader> => {
    const reader = opened.get(count) ?? openReader({ threads: count, folders, timezone });
    opened.set(count, reader);
    return reader;
  };
  const { pool } = await readerOf(threads);
  const check = createExpressionCheck(pool);
  const tables = parquetTables(pool);
  return namingDecoder({
    footers: (files) => readFooters(pool, files),
    windows: sliceWindows,
    async *read(slice) {
      yield* readSlice((await readerOf(decodingThreads(threads, slice.projection))).pool, check, slice);
    },
    verify: (file, signal) => verifyPages(file, { signal }),
    bindExpression: (request) => bindExpression(tables, check, request),
    describeRows: (request) => describeRows(tables, check, request),
    describeFailure: (request) => describeFailure(tables, check, request),
    async [Symbol.asyncDispose]() {
      for (const reader of opened.values()) {
        (await reader.catch(() => undefined))?.close();
      }
    },
  });
}

interface Reader {
  readonly pool: ConnectionPool;
  close(): void;
}

async function openReader({ threads, folders, timezone }: ParquetDecoderOptions): Promise<Reader> {
  const duckdb = await openDuckDb({
    threads,
    allowed: { folders },
    settings: { TimeZone: quoteText(timezone) },
    prepared: { connections: streams, settings: { streaming_buffer_size: "'16MB'" } },
  });
  const pool = connectionPool(duckdb);
  return {
    pool,
    close() {
      pool.close();
      duckdb[Symbol.dispose]();
    },
  };
}

/** Where a row group is damaged, the rows before it still come: whole spans of them can be committed. */
async function* readSlice(
  pool: ConnectionPool,
  check: ExpressionCheck,
  slice: SliceRequest,
): AsyncGenerator<RecordBatch> {
  await check.all(slice.projection.expressions);
  const end = yield* streamRows(pool, slice);
  if (end.cause === undefined && end.reached === slice.rowEnd) {
    return;
  }
  const { error, rowStart } = await findDamage(pool, slice, end);
  if (rowStart > end.reached) {
    yield* streamRows(pool, { ...slice, rowStart: end.reached, rowEnd: rowStart });
  }
  throw error;
}

async function* streamRows(pool: ConnectionPool, slice: SliceRequest): AsyncGenerator<RecordBatch, StreamEnd> {
  const connection = await pool.take();
  let finished = false;
  let next = slice.rowStart;
  let fetched: Promise<DuckDBDataChunk | null> | undefined;
  try {
    const result = await connection.stream(sliceSql(slice, parquetTable(slice.file.path)));
    fetched = result.fetchChunk();
    for (;;) {
      const chunk = await fetched;
      if (chunk === null || chunk.rowCount === 0) {
        break;
      }
      // Decoded while this one is packed: DuckDB's only thread may be the one that fetches.
      fetched = result.fetchChunk();
      fetched.catch(() => undefined); // awaited when this one is done with
      checkRowNumbers(chunk, next, slice);
      next += chunk.rowCount;
      yield recordBatch(chunk, slice.projection);
    }
    finished = true;
  } catch (cause) {
    if (cause instanceof JobError) {
      throw cause;
    }
    return { reached: next, cause };
  } finally {
    if (finished) {
      pool.giveBack(connection);
    } else {
      await fetched?.catch(() => undefined);
      connection.closeSync(); // a stream that was left in the middle must not be met by the next query
    }
  }
  return { reached: next, cause: undefined };
}

/** Rows come in file order without a gap, whatever DuckDB's threads do: a batch starts where the last one ended. */
export function checkRowNumbers(chunk: DuckDBDataChunk, expected: number, slice: SliceRequest): void {
  const numbers = readFlat(chunk, 0, "int64").data;
  const first = Number(numbers[0]);
  const last = Number(numbers[chunk.rowCount - 1]);
  if (first !== expected || last !== expected + chunk.rowCount - 1 || last >= slice.rowEnd) {
    throw new JobError(
      "SHARD_CORRUPT",
      `reading ${slice.file.path}: rows ${first}..${last} came where row ${expected} and the ${chunk.rowCount - 1} after it were expected`,
      { hint: "the file's row groups do not agree with its footer; write the shard again" },
    );
  }
}

export function recordBatch(chunk: DuckDBDataChunk, projection: Projection): RecordBatch {
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
  const element = binding.dtype === "float16" ? "float64" : tensorElement(binding.dtype);
  const width = binding.kind === "list" ? binding.width : binding.columns.length;
  return width === 1 && binding.kind === "matrix"
    ? readFlat(chunk, index, element)
    : readMatrix(chunk, index, element, width);
}
