import type { MemoryBudget } from "../../../util/memory-budget.js";
import type { Column, RecordBatch } from "../../../columnar/types.js";
import type { ConnectionPool } from "../../../duckdb/instance.js";
import { JobError } from "../../../util/errors.js";
import { describeRows } from "../../sql/describe-rows.js";
import { checkRowNumbers, recordBatches } from "../../sql/chunks.js";
import { type DuckDbReader, type DuckDbReaderOptions, openDuckDbReader } from "../../sql/reader.js";
import { folderConstants } from "../../sql/folder-constants.js";
import { findDamage, type StreamEnd } from "./damage.js";
import type { SchemaReader } from "../footer/footers.js";
import { bindExpression, createExpressionCheck, describeFailure } from "../../sql/expressions.js";
import { schemaReader } from "./schemas.js";
import { coalescedSql, sliceSql } from "../../sql/slice-sql.js";
import { streamChunks } from "./stream.js";
import { type Place, placeIn } from "./coalesced.js";
import type { Decoder, SliceRequest } from "../../port.js";
import { countKept } from "./count-kept.js";
import { type ExactTables, exactTables } from "./exact-table.js";
import { plannedColumns } from "../../planned-columns.js";
import { areReadableTogether, readableParts } from "./readable-parts.js";
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
  countKept(slices: readonly SliceRequest[]): Promise<number>;
}

export interface ParquetOptions extends DuckDbReaderOptions {
  readonly memory: MemoryBudget;
}

export function openParquetByDuckDb({ memory, ...others }: ParquetOptions): ParquetByDuckDb {
  const options = { ...others, memoryBytes: memory.duckDbBytes };
  const exact = exactTables();
  const opened = new Map<number, DuckDbReader>();
  /** DuckDB's threads are fixed when it is opened. */
  const readerOf = (count: number): DuckDbReader => {
    const reader =
      opened.get(count) ??
      openDuckDbReader({ ...options, folders: [...options.folders, exact.folder], threads: count });
    opened.set(count, reader);
    return reader;
  };
  const { pool } = readerOf(options.threads);
  const check = createExpressionCheck(pool);
  const tables = parquetTables(pool, exact);
  return {
    schemas: schemaReader(pool),
    constants: (slice) => folderConstants(pool, slice, 1),
    async *read(slices, threads) {
      await check.all(slices[0].projection.expressions);
      yield* readSlices({ pool: readerOf(threads).pool, memory, exact }, slices);
    },
    async countKept(slices) {
      for (const { projection } of slices.slice(0, 1)) {
        await check.all(projection.expressions); // the same for all
      }
      return await countKept({ pool, memory, exact }, slices);
    },
    bindExpression: (request) => bindExpression(tables, check, request),
    describeRows: (request) => describeRows(tables, check, request),
    describeFailure: (request) => describeFailure(tables, check, request),
    async [Symbol.asyncDispose]() {
      for (const reader of opened.values()) {
        await reader[Symbol.asyncDispose]();
      }
      await exact[Symbol.asyncDispose]();
    },
  };
}

interface ReadTools {
  readonly pool: ConnectionPool;
  readonly memory: MemoryBudget;
  readonly exact: ExactTables;
}

async function* readSlices(
  tools: ReadTools,
  slices: readonly [SliceRequest, ...SliceRequest[]],
): AsyncGenerator<RecordBatch> {
  const place = placeIn(slices);
  if (slices.length > 1) {
    yield* streamCoalesced(tools, slices, place);
  }
  for (const [index, slice] of slices.entries()) {
    if (index >= place.slice) {
      yield* readSlice(tools, index === place.slice ? { ...slice, rowStart: slice.rowStart + place.row } : slice);
    }
  }
}

/** Where a row group is damaged, the rows before it still come: whole spans of them can be committed. */
async function* readSlice(tools: ReadTools, slice: SliceRequest): AsyncGenerator<RecordBatch> {
  const { parts, footer, unfit } = await readableParts(slice, tools.memory);
  for (const part of parts) {
    for (const { slice: rows, ranges } of await tools.exact.parts(part, footer)) {
      const shard = { file: rows.file, footer, columns: plannedColumns(rows.projection), ranges };
      yield* tools.exact.stream(shard, (table) => readWhole(tools, rows, table));
    }
  }
  if (unfit !== undefined) {
    throw unfit.error;
  }
}

async function* readWhole(tools: ReadTools, slice: SliceRequest, table: string): AsyncGenerator<RecordBatch> {
  const end = yield* streamRows(tools, slice, table);
  if (end.cause === undefined && end.reached === slice.rowEnd) {
    return;
  }
  const { error, rowStart } = await findDamage(tools.pool, slice, end);
  if (rowStart > end.reached) {
    yield* streamRows(tools, { ...slice, rowStart: end.reached, rowEnd: rowStart }, table);
  }
  throw error;
}

async function* streamRows(
  { pool, memory }: ReadTools,
  slice: SliceRequest,
  table: string,
): AsyncGenerator<RecordBatch, StreamEnd> {
  let next = slice.rowStart;
  const chunks = untilFailure(streamChunks(pool, sliceSql(slice, table)));
  try {
    for (;;) {
      const step = await chunks.next();
      if (step.done === true) {
        return { reached: next, cause: step.value };
      }
      checkRowNumbers(step.value, next, slice);
      for (const { batch, rows } of recordBatches(step.value, slice.projection, memory)) {
        next += rows; // not before they are a batch
        yield batch;
      }
    }
  } finally {
    await chunks.return(undefined);
  }
}

/**
 * Yields the chunks, and returns the error that DuckDB ended them with; undefined: DuckDB read all of them. Errors of
 * the consumer are not caught.
 */
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
 * Yields rows of whole shards until DuckDB fails. The stream of the single shard then reports the error. All rows
 * before the position have been yielded.
 */
async function* streamCoalesced(
  { pool, memory }: ReadTools,
  slices: readonly [SliceRequest, ...SliceRequest[]],
  place: Place,
): AsyncGenerator<RecordBatch> {
  if (!(await areReadableTogether(slices, memory))) {
    return;
  }
  for await (const chunk of untilFailure(streamChunks(pool, coalescedSql(slices)))) {
    if (!place.isDue(chunk)) {
      return;
    }
    for (const { batch, rows } of recordBatches(chunk, slices[0].projection, memory, 2)) {
      place.pass(rows);
      yield batch;
    }
  }
}
