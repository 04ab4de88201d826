import type { RecordBatch } from "../../columnar/types.js";
import { lazyResource } from "../../util/promises.js";
import { batchLimits, readPieces } from "./ipc/batches.js";
import { rowsWithin } from "../../columnar/column-bytes.js";
import { mebibytes, type MemoryBudget, memoryBudget } from "../../util/memory-budget.js";
import type { Piece } from "../../columnar/piece.js";
import type { ArrowByDuckDb } from "./duckdb/decoder.js";
import { type Constants, directPlan } from "../../packing/direct/plan.js";
import type { Claim } from "../by-format.js";
import { arrowFooters } from "./footers.js";
import { checkEnd, type OpenArrow } from "./ipc/shards.js";
import { arrowUnits, batchWorkers } from "./units.js";
import { verifyArrow } from "./verify.js";
import { arrowWindows } from "./ipc/windows.js";
import { namingDecoder } from "../naming.js";
import { columnsInFile, hasFolderColumns, plannedColumns } from "../planned-columns.js";
import type { Decoder, ShardFile, ShardSchema, SliceRequest, SliceUnits } from "../port.js";

export interface ArrowDecoderOptions {
  readonly timezone: string;
  /** Default: that of `engine.memory: 512MiB`. */
  readonly memory?: MemoryBudget | undefined;
  /** Where shards are files that workers may open. `claimOf`: what one of this name should be. */
  readonly files?: { readonly claimOf: (name: string) => Claim } | undefined;
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
  const { timezone, memory = memoryBudget(mebibytes(512)), files: local, open } = options;
  const duckdb = lazyResource(async () => {
    const { openArrowByDuckDb } = await import("./duckdb/decoder.js"); // and DuckDB's library with it
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
      const units = local && arrowUnits(shard, slice, { claimOf: local.claimOf, limits, sharing });
      if (units === undefined) {
        return undefined;
      }
      const hasConstants = hasFolderColumns(slice.projection);
      return {
        units,
        constants: hasConstants ? await (await duckdb.open()).constants(slice, 1) : new Map(),
        fitting: workersFor,
      };
    },
    read,
    async countKept(slices) {
      let kept = 0;
      for await (const { rowCount, selection } of read(slices)) {
        kept += rowCount - (selection?.failed.length ?? 0);
      }
      return kept;
    },
    verify: (file, signal) => verifyArrow(file, open, signal),
    bindExpression: async (request) => await (await duckdb.open()).bindExpression(request),
    describeRows: async (request) => await (await duckdb.open()).describeRows(request),
    describeFailure: async (request) => await (await duckdb.open()).describeFailure(request),
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
