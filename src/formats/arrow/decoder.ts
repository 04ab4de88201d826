import type { Piece, RecordBatch, SourceColumn } from "../../columns/types.js";
import { JobError } from "../../base/errors.js";
import { type ArrowIndex, type OpenArrow, checkEnd } from "./shards.js";
import { typeOfField, sourceColumns } from "./metadata.js";
import { refuseNames } from "../sql/slice-sql.js";
import type { Decoder, PageCounts, ShardFile, ShardFooter, ShardSchema, SliceRequest, SliceUnits } from "../format.js";
import { arrowWindows, batchLimits, fetchArrowRows, readPieces } from "./batches.js";
import { rewriteShard } from "../faults.js";
import { lazyResource } from "../../base/promises.js";
import { rowsWithin } from "../../columns/columns.js";
import { type MemoryBudget, mebibytes, memoryBudget } from "../../base/memory-budget.js";
import type { ArrowByDuckDb } from "./duckdb.js";
import { type Constants, directPlan } from "../../flow/pack/direct.js";
import { namingDecoder } from "../by-format.js";
import { arrowUnits, batchWorkers } from "./units.js";
import { columnsInFile, hasFolderColumns, plannedColumns } from "../planned-columns.js";

const filesAtOnce = 16;

/**
 * `schemas`: those that were met before; files with the same columns get the same object.
 * @public so that tests see it
 */
export async function* arrowFooters(
  files: readonly ShardFile[],
  open: (file: ShardFile) => Promise<OpenArrow>,
  schemas = new Map<string, ShardSchema>(),
): AsyncGenerator<ShardFooter> {
  for (let start = 0; start < files.length; start += filesAtOnce) {
    const group = files.slice(start, start + filesAtOnce).map(async (file) => {
      await using shard = await open(file);
      return { file, index: shard.index };
    });
    for (const { file, index } of await Promise.all(group)) {
      const { path } = file;
      const columns = columnsOfArrow(path, index);
      const key = JSON.stringify(columns);
      const schema = schemas.get(key) ?? { columns, legacyDates: [] };
      schemas.set(key, schema);
      const { rows, batches, sizeBytes } = index;
      yield { path, rows, rowGroups: batches.length, sizeBytes, schema, encrypted: [], nulls: new Map() };
    }
  }
}

/** @throws JobError SCHEMA_MISMATCH for names that are equal ignoring case */
export function columnsOfArrow(path: string, { schema }: ArrowIndex): SourceColumn[] {
  const columns = sourceColumns(schema);
  refuseNames(
    path,
    columns.map(({ name }) => name),
  );
  return columns;
}

/**
 * Reads every column of every batch that can be read: places, lengths, offsets, indices, texts and compressed buffers
 * must be in order. Arrow has no checksums; a batch counts as a page without one.
 * @throws JobError SHARD_CORRUPT
 * @public so that tests see it
 */
export async function verifyArrow(
  file: ShardFile,
  open: (file: ShardFile) => Promise<OpenArrow>,
  signal: AbortSignal,
): Promise<PageCounts> {
  await using shard = await open(file);
  const { bytes, index } = shard;
  const readable = index.schema.fields.filter((field) => typeOfField(field) !== undefined);
  const columns = new Map(readable.map(({ name }) => [name, undefined]));
  if (columns.size < readable.length) {
    throw new JobError("SCHEMA_MISMATCH", `checking ${file.path}: two columns have the same name`, {
      hint: rewriteShard,
    });
  }
  for (const { rowStart, rows } of index.batches) {
    const slice = { rowStart, rowEnd: rowStart + rows };
    await fetchArrowRows(bytes, index, { ...slice, columns: new Set(columns.keys()) });
    const pieces = readPieces(bytes, index, { ...slice, columns });
    while ((await pieces.next()).done !== true) {
      signal.throwIfAborted();
    }
    await file.remote?.forget();
  }
  return { pages: index.batches.length, checksums: 0 };
}

export interface ArrowDecoderOptions {
  readonly timezone: string;
  /** Default: that of `engine.memory: 512MiB`. */
  readonly memory?: MemoryBudget | undefined;
  /** Whether shards are files, which workers may open. */
  readonly areFiles?: boolean | undefined;
  readonly open: (file: ShardFile) => Promise<OpenArrow>;
}

/** Rows of a batch: as many as DuckDB's vectors have. */
const batchRows = 2048;
/** Workers that a slice is shared among where it is not known. */
const usualWorkers = 4;

/**
 * Opens a decoder of Arrow files and streams. It copies columns itself. DuckDB computes expressions and casts that take
 * more than copying: the rows are put into a DuckDB table, which is queried as a Parquet file is.
 */
export function openArrowDecoder(options: ArrowDecoderOptions): Decoder {
  const { timezone, memory = memoryBudget(mebibytes(512)), areFiles = false, open } = options;
  const duckdb = lazyResource(async () => {
    const { openArrowByDuckDb } = await import("./duckdb.js"); // and DuckDB's library with it
    return openArrowByDuckDb({ timezone, open, memory });
  });
  const schemas = new Map<string, ShardSchema>();
  const read = async function* (slices: readonly SliceRequest[]): AsyncGenerator<RecordBatch> {
    for (const slice of slices) {
      await using shard = await open(slice.file);
      yield* readHere({ shard, duckdb: () => duckdb.open(), memory }, slice);
    }
  };
  return namingDecoder({
    footers: (files) => arrowFooters(files, open, schemas),
    async windows({ file, rowStart, rowEnd, projection }, windowBytes) {
      await using shard = await open(file);
      const columns = new Set(columnsInFile(projection));
      return await arrowWindows(shard.bytes, shard.index, { rowStart, rowEnd, columns, windowBytes });
    },
    async units(slice, { sharing }): Promise<SliceUnits | undefined> {
      await using shard = await open(slice.file);
      const workersFor = (workers: number): number => batchWorkers(shard, slice, { workers, memory });
      const limits = batchLimits(memory, workersFor(sharing?.workers ?? usualWorkers));
      const units = areFiles ? arrowUnits(shard, slice, { limits, sharing }) : undefined;
      if (units === undefined) {
        return undefined;
      }
      const hasConstants = hasFolderColumns(slice.projection);
      return {
        units,
        removed: new Uint32Array(0),
        constants: hasConstants ? await (await duckdb.open()).constants(slice, 1) : new Map(),
        fitting: workersFor,
      };
    },
    read,
    verify: (file, signal) => verifyArrow(file, open, signal),
    sql: () => duckdb.open(),
    [Symbol.asyncDispose]: () => duckdb[Symbol.asyncDispose](),
  });
}

interface ReadTools {
  readonly shard: OpenArrow;
  readonly duckdb: () => Promise<ArrowByDuckDb>;
  readonly memory: MemoryBudget;
}

async function* readHere(tools: ReadTools, slice: SliceRequest): AsyncGenerator<RecordBatch> {
  const { shard, duckdb } = tools;
  const direct = directPlan(slice.projection);
  if (direct === undefined) {
    yield* (await duckdb()).read(shard, slice);
  } else {
    const isPlaced = hasFolderColumns(slice.projection);
    const constants: Constants = isPlaced ? await (await duckdb()).constants(slice, batchRows) : new Map();
    yield* readDirectly(tools, slice, (piece, rows) => direct.batch(piece, rows, constants));
  }
}

async function* readDirectly(
  { shard: { bytes, index, known }, memory }: ReadTools,
  slice: SliceRequest,
  make: (piece: Piece, rows: { from: number; to: number }) => RecordBatch,
): AsyncGenerator<RecordBatch> {
  const columns = plannedColumns(slice.projection);
  let next = slice.rowStart;
  for await (const piece of readPieces(bytes, index, { ...slice, columns, known, limits: batchLimits(memory) })) {
    const rows = piece.rowEnd - piece.rowStart;
    for (let from = 0; from < rows; ) {
      const range = { from, to: Math.min(from + batchRows, rows), limit: memory.batchBytes };
      const to = from + rowsWithin(piece.columns.values(), range);
      next += to - from;
      yield make(piece, { from, to });
      from = to;
    }
  }
  checkEnd(slice, next);
}
