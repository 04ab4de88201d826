import { boundColumns } from "../batch/contract.js";
import type { Column, ColumnType, RecordBatch } from "../batch/types.js";
import { openDuckDb } from "../duckdb/instance.js";
import { type ConnectionPool, connectionPool } from "../duckdb/pool.js";
import { quoteText } from "../duckdb/sql.js";
import { readColumn } from "../duckdb/read-vector.js";
import { type Piece, readPieces } from "./arrow-batches.js";
import { corruptArrow } from "./arrow-bytes.js";
import { directPlan } from "./arrow-direct.js";
import { arrowFooters } from "./arrow-footers.js";
import { appendPiece, arrowTables, createTable, type OpenArrow, rowsTableName, tableColumns } from "./arrow-tables.js";
import { verifyArrow } from "./arrow-verify.js";
import { arrowWindows } from "./arrow-windows.js";
import { columnSql } from "./cast-sql.js";
import { describeRows } from "./describe-rows.js";
import { namingDecoder } from "./naming.js";
import { checkRowNumbers, recordBatch } from "./parquet.js";
import { bindExpression, createExpressionCheck, describeFailure, type ExpressionCheck } from "./parquet-expressions.js";
import { sliceSql } from "./parquet-sql.js";
import { columnsInFile } from "./parquet-windows.js";
import type { Decoder, Projection, ShardFile, ShardSchema, SliceRequest } from "./port.js";

export interface ArrowDecoderOptions {
  readonly timezone: string;
  readonly open: (file: ShardFile) => Promise<OpenArrow>;
}

/** The slice that is read, the one after it, and what is asked meanwhile. */
const streams = 2;
/** Rows that are handed on at once: as many as DuckDB's vectors have. */
const batchRows = 2048;

/**
 * Arrow files and streams. What needs no more than copying is made here; expressions, and casts that are more than
 * that, are DuckDB's: the rows are put into a table of its, and asked for as those of a Parquet file are.
 */
export function openArrowDecoder({ timezone, open }: ArrowDecoderOptions): Decoder {
  let opened: Promise<{ pool: ReturnType<typeof connectionPool>; check: ExpressionCheck; close(): void }> | undefined;
  const duckdb = (): NonNullable<typeof opened> => (opened ??= openReader(timezone));
  const schemas = new Map<string, ShardSchema>();
  const tools = async () => {
    const { pool, check } = await duckdb();
    return { check, tables: arrowTables(pool, open) };
  };
  return namingDecoder({
    footers: (files) => arrowFooters(files, open, schemas),
    async windows({ file, rowStart, rowEnd, projection }, windowBytes) {
      await using shard = await open(file);
      const columns = new Set(columnsInFile(projection));
      return await arrowWindows(shard.bytes, shard.index, { rowStart, rowEnd, columns, windowBytes });
    },
    async *read(slices) {
      for (const slice of slices) {
        await using shard = await open(slice.file);
        const direct = directPlan(slice.projection);
        if (direct === undefined) {
          const { pool, check } = await duckdb();
          await check.all(slice.projection.expressions);
          yield* readByTable(pool, shard, slice);
        } else {
          const constants = await folderConstants(slice, async () => (await duckdb()).pool);
          yield* readDirectly(shard, slice, (piece, rows) => direct.batch(piece, rows, constants));
        }
      }
    },
    verify: (file, signal) => verifyArrow(file, open, signal),
    bindExpression: async (request) => {
      const { tables, check } = await tools();
      return await bindExpression(tables, check, request);
    },
    describeRows: async (request) => {
      const { tables, check } = await tools();
      return await describeRows(tables, check, request);
    },
    describeFailure: async (request) => {
      const { tables, check } = await tools();
      return await describeFailure(tables, check, request);
    },
    async [Symbol.asyncDispose]() {
      (await opened?.catch(() => undefined))?.close();
    },
  });
}

async function openReader(timezone: string) {
  const duckdb = await openDuckDb({
    threads: 1,
    allowed: {},
    settings: { TimeZone: quoteText(timezone) },
    prepared: { connections: streams, settings: { streaming_buffer_size: "'16MB'" } },
  });
  const pool = connectionPool(duckdb);
  return {
    pool,
    check: createExpressionCheck(pool),
    close() {
      pool.close();
      duckdb[Symbol.dispose]();
    },
  };
}

/** The file's columns that a projection reads, each with the type that the plan has, where it is known. */
function plannedTypes(projection: Projection): [string, ColumnType | undefined][] {
  const refs = boundColumns(projection);
  return columnsInFile(projection).map((name) => [
    name,
    refs.find(({ path, computed }) => path.length === 1 && path[0] === name && computed !== true)?.type,
  ]);
}

function checkEnd({ file, rowEnd }: SliceRequest, reached: number): void {
  if (reached !== rowEnd) {
    throw corruptArrow(file.path, `its rows end with row ${reached}, ${rowEnd} were planned`);
  }
}

/** Values from folder names, as columns of as many rows as a batch has. */
async function folderConstants(
  { projection, partitions }: SliceRequest,
  pool: () => Promise<ConnectionPool>,
): Promise<ReadonlyMap<string, Column>> {
  const refs = projection.passthrough.flatMap(({ source }) => (source.partition === true ? [source] : []));
  if (refs.length === 0) {
    return new Map();
  }
  const sql = refs.map((ref) => columnSql(ref, partitions)).join(", ");
  const chunk = await (await pool()).use(async (connection) => {
    const result = await connection.run(`SELECT ${sql} FROM range(${batchRows})`);
    return await result.fetchChunk();
  });
  if (chunk?.rowCount !== batchRows) {
    throw new Error(`DuckDB gave ${chunk?.rowCount} rows of constants`);
  }
  return new Map(refs.map((ref, index) => [ref.path[0] ?? "", readColumn(chunk, index, ref.type)]));
}

async function* readDirectly(
  { bytes, index, known }: OpenArrow,
  slice: SliceRequest,
  make: (piece: Piece, rows: { from: number; to: number }) => RecordBatch,
): AsyncGenerator<RecordBatch> {
  const columns = new Map(plannedTypes(slice.projection));
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
  const wanted = plannedTypes(projection).map(([name, type]) => ({ name, type }));
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
