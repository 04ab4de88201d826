import type { Column, RecordBatch } from "../../../columnar/types.js";
import type { ConnectionPool } from "../../../duckdb/instance.js";
import type { MemoryBudget } from "../../../util/memory-budget.js";
import { batchLimits, readPieces } from "../ipc/batches.js";
import { appendPiece, arrowTables, createTable, rowsTableName, tableColumns } from "./tables.js";
import { checkEnd, type OpenArrow } from "../ipc/shards.js";
import { describeRows } from "../../sql/describe-rows.js";
import { checkRowNumbers, recordBatches } from "../../sql/chunks.js";
import { openDuckDbReader } from "../../sql/reader.js";
import { folderConstants } from "../../sql/folder-constants.js";
import { bindExpression, createExpressionCheck, describeFailure } from "../../sql/expressions.js";
import { sliceSql } from "../../sql/slice-sql.js";
import { plannedColumns } from "../../planned-columns.js";
import type { Decoder, ShardFile, SliceRequest } from "../../port.js";

/** What DuckDB does of Arrow shards. Its library is large: loaded where something needs it. */
export interface ArrowByDuckDb
  extends Pick<Decoder, "bindExpression" | "describeRows" | "describeFailure">,
    AsyncDisposable {
  /** Columns from folder names, of so many rows, up to 2,048. */
  constants(slice: SliceRequest, rows: number): Promise<ReadonlyMap<string, Column>>;
  read(shard: OpenArrow, slice: SliceRequest): AsyncGenerator<RecordBatch>;
}

export interface ArrowByDuckDbOptions {
  readonly timezone: string;
  readonly open: (file: ShardFile) => Promise<OpenArrow>;
  readonly memory: MemoryBudget;
}

export function openArrowByDuckDb({ timezone, open, memory }: ArrowByDuckDbOptions): ArrowByDuckDb {
  const duckdb = openDuckDbReader({ threads: 1, folders: [], timezone, memoryBytes: memory.duckDbBytes });
  const { pool } = duckdb;
  const check = createExpressionCheck(pool);
  const tables = arrowTables(pool, open);
  return {
    constants: (slice, rows) => folderConstants(pool, slice, rows),
    async *read(shard, slice) {
      await check.all(slice.projection.expressions);
      yield* readByTable({ pool, shard, memory }, slice);
    },
    bindExpression: (request) => bindExpression(tables, check, request),
    describeRows: (request) => describeRows(tables, check, request),
    describeFailure: (request) => describeFailure(tables, check, request),
    [Symbol.asyncDispose]: () => duckdb[Symbol.asyncDispose](),
  };
}

interface TableTools {
  readonly pool: ConnectionPool;
  readonly shard: OpenArrow;
  readonly memory: MemoryBudget;
}

async function* readByTable({ pool, shard, memory }: TableTools, slice: SliceRequest): AsyncGenerator<RecordBatch> {
  const { projection, file } = slice;
  const wanted = Array.from(plannedColumns(projection), ([name, type]) => ({ name, type }));
  const columns = tableColumns(file, shard.index, wanted);
  const connection = await pool.acquire();
  let finished = false;
  let next = slice.rowStart;
  try {
    const request = { ...slice, columns, known: shard.known, limits: batchLimits(memory) };
    for await (const piece of readPieces(shard.bytes, shard.index, request)) {
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
        for (const { batch } of recordBatches(chunk, projection, memory)) {
          yield batch;
        }
      }
      checkEnd({ ...slice, rowEnd }, next);
    }
    finished = true;
  } finally {
    if (finished) {
      pool.release(connection);
    } else {
      connection.closeSync(); // a stream that was left in the middle must not be met by the next query
    }
  }
  checkEnd(slice, next);
}
