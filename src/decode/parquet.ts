import type { DuckDBDataChunk } from "@duckdb/node-api";
import { type DecodedBinding, decodedInputs } from "../batch/contract.js";
import { selectRows } from "../batch/select-rows.js";
import { tensorElement } from "../batch/tensor.js";
import type { DecodedInput, RecordBatch } from "../batch/types.js";
import type { ConnectionPool } from "../duckdb/pool.js";
import { readColumn, readFlat, readMatrix } from "../duckdb/read-vector.js";
import { JobError } from "../errors.js";
import { openBeside } from "./beside.js";
import type { Unit } from "./decode-protocol.js";
import { describeRows } from "./describe-rows.js";
import { type DuckDbReader, type DuckDbReaderOptions, openDuckDbReader } from "./duckdb-reader.js";
import { folderConstants } from "./folder-constants.js";
import { namingDecoder } from "./naming.js";
import { findDamage, type StreamEnd } from "./parquet-damage.js";
import { readFooter } from "./parquet-footer.js";
import { readFooters } from "./parquet-footers.js";
import { bindExpression, createExpressionCheck, describeFailure } from "./parquet-expressions.js";
import { verifyPages } from "./parquet-pages.js";
import { parquetTable, sliceSql, togetherSql } from "./parquet-sql.js";
import { streamChunks } from "./parquet-stream.js";
import { type Place, placeIn } from "./parquet-together.js";
import { parquetUnits } from "./parquet-units.js";
import { sliceWindows } from "./parquet-windows.js";
import type { Decoder, Projection, ShardSchema, SliceRequest } from "./port.js";
import { parquetTables } from "./shard-tables.js";
import { decodingThreads } from "./threads.js";

/** Parquet: simple columns in threads of others, everything else through DuckDB, which decodes and casts ahead of us. */
export function openParquetDecoder(options: DuckDbReaderOptions): Decoder {
  const { threads } = options;
  const opened = new Map<number, DuckDbReader>();
  /** DuckDB's threads are fixed when it is opened. */
  const readerOf = (count: number): DuckDbReader => {
    const reader = opened.get(count) ?? openDuckDbReader({ ...options, threads: count });
    opened.set(count, reader);
    return reader;
  };
  const { pool } = readerOf(threads);
  const check = createExpressionCheck(pool);
  const tables = parquetTables(pool);
  const beside = openBeside(threads);
  const schemas = new Map<string, ShardSchema>();
  return namingDecoder({
    footers: (files) => readFooters(pool, files, schemas),
    windows: sliceWindows,
    async *read(slices, scoring) {
      const [first, ...others] = slices;
      if (first === undefined) {
        return;
      }
      const fitting = (count: number): number => decodingThreads(count, first.projection);
      const units = async (): Promise<Unit[] | undefined> => parquetUnits(await readFooter(first.file), first);
      const how = { units, constants: () => folderConstants(pool, first, 1), fitting };
      const rowStart = others.length === 0 ? yield* beside.read(first, how, scoring) : first.rowStart;
      if (rowStart < first.rowEnd) {
        await check.all(first.projection.expressions);
        yield* readSlices(readerOf(fitting(threads)).pool, [{ ...first, rowStart }, ...others]);
      }
    },
    verify: (file, signal) => verifyPages(file, { signal }),
    bindExpression: (request) => bindExpression(tables, check, request),
    describeRows: (request) => describeRows(tables, check, request),
    describeFailure: (request) => describeFailure(tables, check, request),
    async [Symbol.asyncDispose]() {
      await beside[Symbol.asyncDispose]();
      for (const reader of opened.values()) {
        await reader[Symbol.asyncDispose]();
      }
    },
  });
}

/** Through DuckDB. */
async function* readSlices(
  pool: ConnectionPool,
  slices: readonly [SliceRequest, ...SliceRequest[]],
): AsyncGenerator<RecordBatch> {
  const place = placeIn(slices);
  if (slices.length > 1) {
    yield* streamTogether(pool, slices, place);
  }
  for (const [index, slice] of slices.entries()) {
    if (index >= place.slice) {
      yield* readSlice(pool, index === place.slice ? { ...slice, rowStart: slice.rowStart + place.row } : slice);
    }
  }
}

/** Where a row group is damaged, the rows before it still come: whole spans of them can be committed. */
async function* readSlice(pool: ConnectionPool, slice: SliceRequest): AsyncGenerator<RecordBatch> {
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
  let next = slice.rowStart;
  const chunks = untilFailure(streamChunks(pool, sliceSql(slice, parquetTable(slice.file.path))));
  try {
    for (;;) {
      const step = await chunks.next();
      if (step.done === true) {
        return { reached: next, cause: step.value };
      }
      checkRowNumbers(step.value, next, slice);
      const batch = recordBatch(step.value, slice.projection); // before its rows count as those that came
      next += step.value.rowCount;
      yield batch;
    }
  } finally {
    await chunks.return(undefined);
  }
}

/** What comes, and what DuckDB ended it with; undefined: with nothing. What is made of it may fail for other reasons. */
async function* untilFailure<T>(chunks: AsyncIterable<T>): AsyncGenerator<T, unknown> {
  try {
    yield* chunks;
    return undefined;
  } catch (cause) {
    if (cause instanceof JobError) {
      throw cause;
    }
    return cause;
  }
}

/**
 * Rows of whole shards as far as they come: what is wrong where they end, each shard's own stream will tell. A row that
 * is past has been yielded.
 */
async function* streamTogether(
  pool: ConnectionPool,
  slices: readonly [SliceRequest, ...SliceRequest[]],
  place: Place,
): AsyncGenerator<RecordBatch> {
  for await (const chunk of untilFailure(streamChunks(pool, togetherSql(slices)))) {
    const end = place.after(chunk);
    if (end === undefined) {
      return;
    }
    const batch = recordBatch(chunk, slices[0].projection, 2);
    place.move(end);
    yield batch;
  }
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

/** `numbers`: columns before those that the projection asks for. */
export function recordBatch(chunk: DuckDBDataChunk, projection: Projection, numbers = 1): RecordBatch {
  const { passthrough, expressions } = projection;
  const inputs = decodedInputs(projection);
  const first = expressions === null ? numbers : numbers + 1;
  const batch = {
    rowCount: chunk.rowCount,
    inputs: inputs.map((binding, index) => readInput(chunk, index + first, binding)),
    carried: passthrough.map(({ source }, index) => readColumn(chunk, index + first + inputs.length, source.type)),
  };
  return expressions === null ? batch : selectRows(batch, readStates(chunk, numbers), projection);
}

function readStates(chunk: DuckDBDataChunk, index: number): Uint16Array {
  const { data } = readFlat(chunk, index, "uint16");
  if (!(data instanceof Uint16Array)) {
    throw new TypeError("states of rows are 16-bit numbers");
  }
  return data;
}

function readInput(chunk: DuckDBDataChunk, index: number, binding: DecodedBinding): DecodedInput {
  if (binding.kind === "text") {
    const column = readColumn(chunk, index, "utf8");
    if (column.kind !== "bytes") {
      throw new TypeError("a text column is read as bytes");
    }
    return column;
  }
  const element = binding.dtype === "float16" ? "float64" : tensorElement(binding.dtype);
  if (binding.kind === "padded") {
    const column = readColumn(chunk, index, { kind: "list", element });
    if (column.kind !== "list") {
      throw new TypeError("a column of lists is read as lists");
    }
    return column;
  }
  const width = binding.kind === "list" ? binding.width : binding.columns.length;
  return width === 1 && binding.kind === "matrix"
    ? readFlat(chunk, index, element)
    : readMatrix(chunk, index, element, width);
}
