import type { Column, RecordBatch } from "../../../columnar/types.js";
import type { ConnectionPool } from "../../../duckdb/pool.js";
import { JobError } from "../../../util/errors.js";
import { describeRows } from "../../sql/describe-rows.js";
import { checkRowNumbers, recordBatch } from "../../sql/chunks.js";
import { type DuckDbReader, type DuckDbReaderOptions, openDuckDbReader } from "../../sql/reader.js";
import { folderConstants } from "../../sql/folder-constants.js";
import { findDamage, type StreamEnd } from "./damage.js";
import type { SchemaReader } from "../footer/footers.js";
import { bindExpression, createExpressionCheck, describeFailure } from "../../sql/expressions.js";
import { findUnfitLevels } from "../pages/levels.js";
import { schemaReader } from "./schemas.js";
import { parquetTable, sliceSql, coalescedSql } from "../../sql/slice-sql.js";
import { streamChunks } from "./stream.js";
import { type Place, placeIn } from "./coalesced.js";
import type { Decoder, SliceRequest } from "../../port.js";
import { parquetTables } from "./tables.js";

/** What DuckDB does of Parquet shards. Its library is large: loaded where something needs it. */
export interface ParquetByDuckDb
  extends Pick<Decoder, "bindExpression" | "describeRows" | "describeFailure">,
    AsyncDisposable {
  readonly schemas: SchemaReader;
  /** Columns from folder names, of one row. */
  constants(slice: SliceRequest): Promise<ReadonlyMap<string, Column>>;
  /** Rows of slices, in order, with so many of DuckDB's threads. */
  read(slices: readonly [SliceRequest, ...SliceRequest[]], threads: number): AsyncGenerator<RecordBatch>;
}

export function openParquetByDuckDb(options: DuckDbReaderOptions): ParquetByDuckDb {
  const opened = new Map<number, DuckDbReader>();
  /** DuckDB's threads are fixed when it is opened. */
  const readerOf = (count: number): DuckDbReader => {
    const reader = opened.get(count) ?? openDuckDbReader({ ...options, threads: count });
    opened.set(count, reader);
    return reader;
  };
  const { pool } = readerOf(options.threads);
  const check = createExpressionCheck(pool);
  const tables = parquetTables(pool);
  return {
    schemas: schemaReader(pool),
    constants: (slice) => folderConstants(pool, slice, 1),
    async *read(slices, threads) {
      await check.all(slices[0].projection.expressions);
      yield* readSlices(readerOf(threads).pool, slices);
    },
    bindExpression: (request) => bindExpression(tables, check, request),
    describeRows: (request) => describeRows(tables, check, request),
    describeFailure: (request) => describeFailure(tables, check, request),
    async [Symbol.asyncDispose]() {
      for (const reader of opened.values()) {
        await reader[Symbol.asyncDispose]();
      }
    },
  };
}

async function* readSlices(
  pool: ConnectionPool,
  slices: readonly [SliceRequest, ...SliceRequest[]],
): AsyncGenerator<RecordBatch> {
  const place = placeIn(slices);
  if (slices.length > 1) {
    yield* streamCoalesced(pool, slices, place);
  }
  for (const [index, slice] of slices.entries()) {
    if (index >= place.slice) {
      yield* readSlice(pool, index === place.slice ? { ...slice, rowStart: slice.rowStart + place.row } : slice);
    }
  }
}

/**
 * Where a row group is damaged, the rows before it still come: whole spans of them can be committed. Levels are checked
 * before DuckDB is given them: where they do not fit their pages, it may end the process.
 */
async function* readSlice(pool: ConnectionPool, slice: SliceRequest): AsyncGenerator<RecordBatch> {
  const unfit = await findUnfitLevels(slice);
  if (unfit === undefined) {
    yield* readWhole(pool, slice);
    return;
  }
  if (unfit.rowStart > slice.rowStart) {
    yield* readWhole(pool, { ...slice, rowEnd: unfit.rowStart });
  }
  throw unfit.error;
}

async function* readWhole(pool: ConnectionPool, slice: SliceRequest): AsyncGenerator<RecordBatch> {
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
async function* streamCoalesced(
  pool: ConnectionPool,
  slices: readonly [SliceRequest, ...SliceRequest[]],
  place: Place,
): AsyncGenerator<RecordBatch> {
  for (const slice of slices) {
    if ((await findUnfitLevels(slice)) !== undefined) {
      return;
    }
  }
  for await (const chunk of untilFailure(streamChunks(pool, coalescedSql(slices)))) {
    const end = place.after(chunk);
    if (end === undefined) {
      return;
    }
    const batch = recordBatch(chunk, slices[0].projection, 2);
    place.move(end);
    yield batch;
  }
}
