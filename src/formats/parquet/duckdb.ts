import type { SourceColumn, RecordBatch } from "../../columns/types.js";
import type { DuckDBConnection, ConnectionPool } from "../../duckdb/instance.js";
import { readColumns, schemaDigests } from "../../duckdb/parquet-schema.js";
import { firstLine } from "../../duckdb/sql.js";
import { JobError, messageOf } from "../../base/errors.js";
import { rewriteShard } from "../faults.js";
import type { SchemaReader } from "./footers.js";
import { type Leaf, readParquetFooter, type Footer, groupsBetween } from "./footer.js";
import { type ShardTables, type ShardSql, shardSql } from "../sql/expressions.js";
import { boundsOf, columnSql, fromRows, inSlice, parquetTable, sliceSql, coalescedSql } from "../sql/slice-sql.js";
import { rangesBetween } from "./windows.js";
import { type ExactTables, exactTables } from "./exact-table.js";
import type { DuckDBDataChunk } from "@duckdb/node-api";
import { hasIntegerType, readScalars } from "../../duckdb/vectors.js";
import type { SliceRequest, ShardFile } from "../format.js";
import { boundColumns, type ColumnRef } from "../../models/binding/contract.js";
import { corrupt, type DamagedPart, readableTogether, readableParts } from "./readable-parts.js";
import { verifyPages } from "./pages/page-walk.js";
import type { MemoryBudget } from "../../base/memory-budget.js";
import { plannedColumns, removedRows } from "../planned-columns.js";
import { numbersIn } from "../../flow/pack/select-rows.js";
import {
  checkRowNumbers,
  recordBatches,
  type DuckDbReader,
  type DuckDbReaderOptions,
  openDuckDbReader,
  onConnection,
  streamChunks,
} from "../sql/chunks.js";

function schemaReader(pool: ConnectionPool): SchemaReader {
  return {
    digests: (paths) => pool.use((connection) => readDigests(connection, paths)),
    columns: (path, leaves) => pool.use((connection) => readSchema(connection, path, leaves)),
  };
}

async function readDigests(
  connection: DuckDBConnection,
  paths: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  try {
    return await schemaDigests(connection, paths);
  } catch (error) {
    // The message does not always name the file: find the first that fails alone.
    for (const path of paths.length > 1 ? paths : []) {
      await readDigests(connection, [path]);
    }
    const path = paths[0] ?? "";
    const found = firstLine(messageOf(error)).replaceAll(` '${path}'`, "");
    throw new JobError("SHARD_CORRUPT", `reading the footer of ${path}: ${found}`, {
      hint: `the footer is damaged; ${rewriteShard}`,
      cause: error,
    });
  }
}

async function readSchema(
  connection: DuckDBConnection,
  path: string,
  leaves: readonly Leaf[],
): Promise<SourceColumn[]> {
  try {
    return await readColumns(connection, path, leaves);
  } catch (error) {
    throw new JobError("SHARD_CORRUPT", `reading the schema of ${path}: ${firstLine(messageOf(error))}`, {
      hint: "the file is damaged or not Parquet; write it again, or take it out of input.path",
      cause: error,
    });
  }
}

function parquetTables(pool: ConnectionPool, exact: ExactTables): ShardTables {
  return {
    async use(file, { rows, columns }, work) {
      const footer = await readParquetFooter(file);
      const names = columns.map(({ name }) => name);
      const ranges = rangesBetween(footer, boundsOf(rows), names);
      await file.remote?.fetch(ranges);
      const wanted = new Map(columns.map(({ name, type }) => [name, type]));
      return await exact.use({ file, footer, columns: wanted, ranges }, (table) =>
        pool.use((connection) => work(connection, table)),
      );
    },
  };
}

/** In whole shards that are read as one table, the next shard and the next row in it. */
interface Place {
  readonly slice: number;
  readonly row: number;
}

/**
 * The place after a chunk, whose first columns are the number of the shard and the number of the row; undefined: its
 * rows are not exactly the next ones.
 * @public so that tests see it
 */
export function placeAfter(
  chunk: DuckDBDataChunk,
  slices: readonly SliceRequest[],
  { slice, row }: Place,
): Place | undefined {
  const shards = lowWords(chunk, 0, "uint64");
  const numbers = lowWords(chunk, 1, "int64");
  let [at, due] = [slice, row];
  for (let index = 0; index < chunk.rowCount; index += 1) {
    if (shards?.[index * 2] !== at || numbers?.[index * 2] !== due) {
      return undefined;
    }
    due += 1;
    while (due >= (slices[at]?.rowEnd ?? Number.POSITIVE_INFINITY)) {
      at += 1;
      due = 0;
    }
  }
  return { slice: at, row: due };
}

/** The low 32 bits are enough here; undefined: the column is one of the shards with the same name. */
function lowWords(chunk: DuckDBDataChunk, column: number, type: "int64" | "uint64"): Uint32Array | undefined {
  if (!hasIntegerType(chunk, column, type)) {
    return undefined;
  }
  const { data } = readScalars(chunk, column, type);
  return new Uint32Array(data.buffer, data.byteOffset, chunk.rowCount * 2);
}

interface StreamEnd {
  /** The row that was due. */
  readonly reached: number;
  /** What DuckDB said; a stream that meets an error may also just end. */
  readonly cause: unknown;
}

/**
 * Why the rows of a slice did not all come. DuckDB says neither row group nor column, so what is left is read
 * again, without a stream: row group by row group, then the first that fails column by column.
 */
async function findDamage(pool: ConnectionPool, slice: SliceRequest, end: StreamEnd): Promise<DamagedPart> {
  const { file } = slice;
  const { path } = file;
  const damageAt = (error: JobError): DamagedPart => ({ error, rowStart: end.reached });
  const known = kindOf(path, end.cause);
  if (known !== undefined) {
    return damageAt(known);
  }
  try {
    const found = await firstDamaged(pool, { ...slice, rowStart: end.reached }, await readParquetFooter(file));
    if (found !== undefined) {
      return { error: await damageError(file, found), rowStart: found.range.rowStart };
    }
  } catch (error) {
    return damageAt(error instanceof JobError ? error : corrupt(path, messageOf(error), error));
  }
  if (end.cause !== undefined) {
    return damageAt(corrupt(path, firstLine(messageOf(end.cause)), end.cause));
  }
  const came = end.reached === slice.rowStart ? "no row" : `rows ${slice.rowStart}..${end.reached - 1}`;
  return damageAt(corrupt(path, `it gave ${came}, but its footer promises rows up to ${slice.rowEnd - 1}`));
}

/** Errors that say nothing about the shard. */
function kindOf(path: string, error: unknown): JobError | undefined {
  const message = firstLine(messageOf(error));
  return message.startsWith("Permission Error")
    ? new JobError("PERMISSION", `reading ${path}: ${message}`, { hint: "grant read permission", cause: error })
    : undefined;
}

async function firstDamaged(pool: ConnectionPool, slice: SliceRequest, footer: Footer): Promise<Found | undefined> {
  const columns = columnsOf(slice);
  for (const { group, rowStart, rowEnd } of groupsBetween(footer, slice)) {
    const range = { rowStart, rowEnd };
    const part = { ...slice, ...range };
    const table = parquetTable(slice.file.path, footer.select);
    const failureOfAll = await tryToRead(pool, part, { table, columns });
    if (failureOfAll === undefined) {
      continue;
    }
    for (const column of columns) {
      const failure = await tryToRead(pool, part, { table, columns: [column] });
      if (failure !== undefined) {
        return { group, range, column, failure };
      }
    }
    return { group, range, failure: failureOfAll };
  }
  return undefined;
}

interface Found {
  readonly group: number;
  readonly range: Pick<SliceRequest, "rowStart" | "rowEnd">;
  readonly column?: ColumnRef;
  readonly failure: { readonly cause: unknown };
}

async function damageError(file: ShardFile, { group, range, column, failure }: Found): Promise<JobError> {
  const { path } = file;
  const message = firstLine(messageOf(failure.cause));
  if (message.startsWith("Out of Memory Error")) {
    // A damaged page may ask for any amount of memory, so memory is too small only if the pages are undamaged.
    await verifyPages(file, { groups: [group] });
    return new JobError("MEMORY", `reading ${path}: ${message}`, {
      hint: "give the job more memory",
      cause: failure.cause,
    });
  }
  const where = column === undefined ? "" : `, column \`${column.name}\``;
  const place = `row group ${group} (rows ${range.rowStart} to ${range.rowEnd - 1})${where}`;
  return corrupt(path, `${place}: ${message}`, failure.cause);
}

function columnsOf({ projection }: SliceRequest): ColumnRef[] {
  const bound = boundColumns(projection).filter(({ partition, computed }) => partition !== true && computed !== true);
  const { list, folders } = projection.expressions ?? { list: [], folders: [] };
  const used = list.flatMap(({ uses }) => uses).filter((name) => folders.every((folder) => folder.name !== name));
  // Only whether they can be read matters, not their types.
  const refs = [...bound, ...used.map((name): ColumnRef => ({ name, path: [name], type: "utf8" }))];
  return [...new Map(refs.map((ref) => [ref.path.join("\n"), ref])).values()];
}

async function tryToRead(
  pool: ConnectionPool,
  slice: SliceRequest,
  { table, columns }: { readonly table: string; readonly columns: readonly ColumnRef[] },
): Promise<{ cause: unknown } | undefined> {
  // Not count(column): where statistics say that there is no NULL, it is answered without reading the column.
  const sums = columns.map((column) => `bit_xor(hash(${columnSql(column, slice.partitions)}))`);
  const from = fromRows({ ...slice, table, expressions: null }, inSlice(slice));
  try {
    await pool.use((connection) => connection.run(`SELECT ${["count(*)", ...sums].join(", ")} ${from}`));
    return undefined;
  } catch (cause) {
    return { cause };
  }
}

/** What DuckDB does of Parquet shards. Its library is large: loaded where something needs it. */
export interface ParquetByDuckDb extends ShardSql, AsyncDisposable {
  readonly schemas: SchemaReader;
  /** Rows of slices, in order, with so many of DuckDB's threads. */
  read(slices: readonly [SliceRequest, ...SliceRequest[]], threads: number): AsyncGenerator<RecordBatch>;
}

export interface ParquetOptions extends DuckDbReaderOptions {
  readonly memory: MemoryBudget;
}

export function openParquetByDuckDb({ memory, ...others }: ParquetOptions): ParquetByDuckDb {
  const options = { ...others, memoryBytes: memory.duckDbBytes };
  const exact = exactTables();
  const opened = new Map<number, DuckDbReader>();
  /** DuckDB's threads are fixed when it is opened. */
  const poolOf = (threads: number): ConnectionPool => {
    const reader =
      opened.get(threads) ?? openDuckDbReader({ ...options, folders: [...options.folders, exact.folder], threads });
    opened.set(threads, reader);
    return reader.pool;
  };
  const pool = poolOf(options.threads);
  const sql = shardSql(pool, parquetTables(pool, exact));
  return {
    ...sql,
    schemas: schemaReader(pool),
    async *read(slices, threads) {
      await sql.check(slices[0].projection.expressions);
      yield* readSlices({ pool: poolOf(threads), memory, exact }, slices);
    },
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
  const place = slices.length > 1 ? yield* streamCoalesced(tools, slices) : { slice: 0, row: 0 };
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
  const chunks = untilFailure(chunksOf(pool, sliceSql(slice, table)));
  const removed = await removedRows(slice.file);
  try {
    for (;;) {
      const step = await chunks.next();
      if (step.done === true) {
        return { reached: next, cause: step.value };
      }
      checkRowNumbers(step.value, next, slice);
      const inChunk = { rowStart: next, rowEnd: next + step.value.rowCount };
      const options = { removed: numbersIn(removed, inChunk) };
      for (const { batch, rows } of recordBatches(step.value, slice.projection, memory, options)) {
        next += rows; // not before they are a batch
        yield batch;
      }
    }
  } finally {
    await chunks.return(undefined);
  }
}

function chunksOf(pool: ConnectionPool, sql: string): AsyncGenerator<DuckDBDataChunk> {
  return onConnection(pool, (connection) => streamChunks(connection, sql));
}

/** Returns the error that DuckDB ended them with; undefined: none. Errors of the consumer are not caught. */
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

/** Returns the place of the next row, also where DuckDB fails: the stream of the single shard reports the error. */
async function* streamCoalesced(
  { pool, memory }: ReadTools,
  slices: readonly [SliceRequest, ...SliceRequest[]],
): AsyncGenerator<RecordBatch, Place> {
  let place: Place = { slice: 0, row: 0 };
  const together = await readableTogether(slices, memory);
  if (together === undefined) {
    return place;
  }
  for await (const chunk of untilFailure(chunksOf(pool, coalescedSql(slices, together.select)))) {
    const next = placeAfter(chunk, slices, place);
    if (next === undefined) {
      break;
    }
    for (const { batch } of recordBatches(chunk, slices[0].projection, memory, { numbers: 2 })) {
      yield batch;
    }
    place = next;
  }
  return place;
}
