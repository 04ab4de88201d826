import type { RecordBatch } from "../batch/types.js";
import type { ConnectionPool } from "../duckdb/pool.js";
import { type Piece, readPieces } from "./arrow-batches.js";
import { corruptArrow } from "./arrow-bytes.js";
import { directPlan } from "./arrow-direct.js";
import type { Claim } from "./arrow-index.js";
import { arrowFooters } from "./arrow-footers.js";
import { appendPiece, arrowTables, createTable, type OpenArrow, rowsTableName, tableColumns } from "./arrow-tables.js";
import { arrowUnits } from "./arrow-units.js";
import { verifyArrow } from "./arrow-verify.js";
import { arrowWindows } from "./arrow-windows.js";
import { openBeside } from "./beside.js";
import type { Unit } from "./decode-protocol.js";
import { describeRows } from "./describe-rows.js";
import { openDuckDbReader } from "./duckdb-reader.js";
import { folderConstants } from "./folder-constants.js";
import { namingDecoder } from "./naming.js";
import { checkRowNumbers, recordBatch } from "./parquet.js";
import { bindExpression, createExpressionCheck, describeFailure } from "./parquet-expressions.js";
import { sliceSql } from "./parquet-sql.js";
import { columnsInFile } from "./parquet-windows.js";
import { plannedColumns } from "./planned-columns.js";
import type { Decoder, ShardFile, ShardSchema, SliceRequest } from "./port.js";

export interface ArrowDecoderOptions {
  readonly timezone: string;
  /** Where shards are files that threads may open. `claimOf`: what one of this name should be. */
  readonly files?: { readonly threads: number; readonly claimOf: (name: string) => Claim } | undefined;
  readonly open: (file: ShardFile) => Promise<OpenArrow>;
}

/** Rows that are handed on at once: as many as DuckDB's vectors have. */
const batchRows = 2048;

/**
 * Arrow files and streams. What needs no more than copying is made here; expressions, and casts that are more than
 * that, are DuckDB's: the rows are put into a table of its, and asked for as those of a Parquet file are.
 */
export function openArrowDecoder({ timezone, files: local, open }: ArrowDecoderOptions): Decoder {
  const duckdb = openDuckDbReader({ threads: 1, folders: [], timezone });
  const { pool } = duckdb;
  const check = createExpressionCheck(pool);
  const tables = arrowTables(pool, open);
  const beside = openBeside(local?.threads ?? 0);
  const schemas = new Map<string, ShardSchema>();
  return namingDecoder({
    footers: (files) => arrowFooters(files, open, schemas),
    async windows({ file, rowStart, rowEnd, projection }, windowBytes) {
      await using shard = await open(file);
      const columns = new Set(columnsInFile(projection));
      return await arrowWindows(shard.bytes, shard.index, { rowStart, rowEnd, columns, windowBytes });
    },
    async *read(slices, scoring) {
      for (const slice of slices) {
        await using shard = await open(slice.file);
        const units = (): Promise<Unit[] | undefined> =>
          Promise.resolve(local && arrowUnits(shard, slice, local.claimOf));
        // Of a batch no more is held there than here.
        const how = { units, constants: () => folderConstants(pool, slice, 1), fitting: (count: number) => count };
        const rowStart = yield* beside.read(slice, how, scoring);
        if (rowStart < slice.rowEnd) {
          await check.all(slice.projection.expressions);
          yield* readHere(pool, shard, { ...slice, rowStart });
        }
      }
    },
    verify: (file, signal) => verifyArrow(file, open, signal),
    bindExpression: (request) => bindExpression(tables, check, request),
    describeRows: (request) => describeRows(tables, check, request),
    describeFailure: (request) => describeFailure(tables, check, request),
    async [Symbol.asyncDispose]() {
      await beside[Symbol.asyncDispose]();
      await duckdb[Symbol.asyncDispose]();
    },
  });
}

async function* readHere(pool: ConnectionPool, shard: OpenArrow, slice: SliceRequest): AsyncGenerator<RecordBatch> {
  const direct = directPlan(slice.projection);
  if (direct === undefined) {
    yield* readByTable(pool, shard, slice);
  } else {
    const constants = await folderConstants(pool, slice, batchRows);
    yield* readDirectly(shard, slice, (piece, rows) => direct.batch(piece, rows, constants));
  }
}

function checkEnd({ file, rowEnd }: SliceRequest, reached: number): void {
  if (reached !== rowEnd) {
    throw corruptArrow(file.path, `its rows end with row ${reached}, ${rowEnd} were planned`);
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

async function* readByTable(pool: ConnectionPool, shard: OpenArrow, slice: SliceRequest): AsyncGenerator<RecordBatch> {
  const { projection, file } = slice;
  const wanted = Array.from(plannedColumns(projection), ([name, type]) => ({ name, type }));
  const columns = tableColumns(file, shard.index, wanted);
  const connection = await pool.take();
  let finished = false;
  let next = slice.rowStart;
  try {
    for await (const piece of readPieces(shard.bytes, shard.index, { ...slice, columns, known: shard.known })) {
      await createTable(connection, columns);
      await appendPiece(connection, columns, piece);
      const { rowStart, rowEnd } = piece;
      const result = await connection.stream(sliceSql({ ...slice, rowStart, rowEnd }, rowsTableName));
      for (;;) {
        const chunk = await result.fetchChunk();
        if (chunk === null || chunk.rowCount === 0) {
          break;
        }
        checkRowNumbers(chunk, next, slice);
        next += chunk.rowCount;
        yield recordBatch(chunk, projection);
      }
      checkEnd({ ...slice, rowEnd }, next);
    }
    finished = true;
  } finally {
    if (finished) {
      pool.giveBack(connection);
    } else {
      connection.closeSync(); // a stream that was left in the middle must not be met by the next query
    }
  }
  checkEnd(slice, next);
}
