import type { RecordBatch } from "../../columnar/types.js";
import { whenNeeded } from "../../util/when-needed.js";
import { readPieces } from "./columns/batches.js";
import type { Piece } from "../../columnar/piece.js";
import type { ArrowByDuckDb } from "./duckdb/decoder.js";
import { type Constants, directPlan } from "../../packing/direct/plan.js";
import type { Claim } from "../by-format.js";
import { arrowFooters } from "./footers.js";
import { checkEnd, type OpenArrow } from "./ipc/shards.js";
import { arrowUnits } from "./units.js";
import { verifyArrow } from "./verify.js";
import { arrowWindows } from "./windows.js";
import { namingDecoder } from "../naming.js";
import { hasFolderColumns, plannedColumns, columnsInFile } from "../planned-columns.js";
import type { Decoder, ShardFile, ShardSchema, SliceRequest, SliceUnits } from "../port.js";

export interface ArrowDecoderOptions {
  readonly timezone: string;
  /** Where shards are files that workers may open. `claimOf`: what one of this name should be. */
  readonly files?: { readonly claimOf: (name: string) => Claim } | undefined;
  readonly open: (file: ShardFile) => Promise<OpenArrow>;
}

/** Rows that are handed on at once: as many as DuckDB's vectors have. */
const batchRows = 2048;

/**
 * Arrow files and streams. What needs no more than copying is made here; expressions, and casts that are more than
 * that, are DuckDB's: the rows are put into a table of its, and asked for as those of a Parquet file are.
 */
export function openArrowDecoder({ timezone, files: local, open }: ArrowDecoderOptions): Decoder {
  const duckdb = whenNeeded(async () => {
    const { openArrowByDuckDb } = await import("./duckdb/decoder.js"); // and DuckDB's library with it
    return openArrowByDuckDb(timezone, open);
  });
  const schemas = new Map<string, ShardSchema>();
  return namingDecoder({
    footers: (files) => arrowFooters(files, open, schemas),
    async windows({ file, rowStart, rowEnd, projection }, windowBytes) {
      await using shard = await open(file);
      const columns = new Set(columnsInFile(projection));
      return await arrowWindows(shard.bytes, shard.index, { rowStart, rowEnd, columns, windowBytes });
    },
    async units(slice, { sharing }): Promise<SliceUnits | undefined> {
      await using shard = await open(slice.file);
      const units = local && arrowUnits(shard, slice, local.claimOf, sharing);
      if (units === undefined) {
        return undefined;
      }
      const hasConstants = hasFolderColumns(slice.projection);
      return {
        units,
        constants: hasConstants ? await (await duckdb.open()).constants(slice, 1) : new Map(),
        fitting: (workers) => workers, // each holds no more of a batch than the main thread would
      };
    },
    async *read(slices) {
      for (const slice of slices) {
        await using shard = await open(slice.file);
        yield* readHere(shard, slice, () => duckdb.open());
      }
    },
    verify: (file, signal) => verifyArrow(file, open, signal),
    bindExpression: async (request) => await (await duckdb.open()).bindExpression(request),
    describeRows: async (request) => await (await duckdb.open()).describeRows(request),
    describeFailure: async (request) => await (await duckdb.open()).describeFailure(request),
    [Symbol.asyncDispose]: () => duckdb[Symbol.asyncDispose](),
  });
}

async function* readHere(
  shard: OpenArrow,
  slice: SliceRequest,
  duckdb: () => Promise<ArrowByDuckDb>,
): AsyncGenerator<RecordBatch> {
  const direct = directPlan(slice.projection);
  if (direct === undefined) {
    yield* (await duckdb()).read(shard, slice);
  } else {
    const isPlaced = hasFolderColumns(slice.projection);
    const constants: Constants = isPlaced ? await (await duckdb()).constants(slice, batchRows) : new Map();
    yield* readDirectly(shard, slice, (piece, rows) => direct.batch(piece, rows, constants));
  }
}

async function* readDirectly(
  { bytes, index, known }: OpenArrow,
  slice: SliceRequest,
  make: (piece: Piece, rows: { from: number; to: number }) => RecordBatch,
): AsyncGenerator<RecordBatch> {
  const columns = plannedColumns(slice.projection);
  let next = slice.rowStart;
  for await (const piece of readPieces(bytes, index, { ...slice, columns, known })) {
    const rows = piece.rowEnd - piece.rowStart;
    for (let from = 0; from < rows; from += batchRows) {
      const to = Math.min(from + batchRows, rows);
      next += to - from;
      yield make(piece, { from, to });
    }
  }
  checkEnd(slice, next);
}
