import type { RecordBatch } from "../../columns/types.js";
import type { DuckDBConnection, ConnectionPool } from "../../duckdb/instance.js";
import { JobError } from "../../base/errors.js";
import { readPieces, fetchArrowRows, batchLimits } from "./batches.js";
import { type ArrowIndex, type OpenArrow, checkEnd } from "./shards.js";
import { typeOfField, showField } from "./metadata.js";
import { untypedNulls, plannedColumns } from "../planned-columns.js";
import type { ShardFile, SliceRequest } from "../format.js";
import { type ShardTables, type WantedColumn, type ShardSql, shardSql } from "../sql/expressions.js";
import { type TableColumns, appendPiece, createRowsTable, readByTable, rowsTableName } from "../sql/rows-table.js";
import { rowsRead } from "../../flow/pack/select-rows.js";
import type { MemoryBudget } from "../../base/memory-budget.js";
import { openDuckDbReader, onConnection } from "../sql/chunks.js";

/** A column that has only NULLs gets the type in `wanted`. */
function tableColumns(file: ShardFile, { schema }: ArrowIndex, wanted: readonly WantedColumn[]): TableColumns {
  return new Map(
    wanted.map(({ name, type }) => {
      const field = schema.fields.find((candidate) => candidate.name === name);
      const known = field && (typeOfField(field) ?? (field.type.kind === "null" ? (type ?? untypedNulls) : undefined));
      if (field === undefined || known === undefined) {
        const shown = field === undefined ? "missing" : showField(field);
        throw new JobError(
          "SCHEMA_MISMATCH",
          `reading ${file.path}: column \`${name}\` is ${shown}, which cannot be read`,
          {
            hint: "leave this one out, or store it otherwise",
          },
        );
      }
      return [name, known];
    }),
  );
}

/** Rows that are as near as this are fetched by one read. */
const nearRows = 64;

function arrowTables(pool: ConnectionPool, open: (file: ShardFile) => Promise<OpenArrow>): ShardTables {
  return {
    async use(file, { rows, columns: wanted }, work) {
      await using shard = await open(file);
      const { bytes, index } = shard;
      const columns = tableColumns(file, index, wanted);
      return await pool.use(async (connection) => {
        await createRowsTable(connection, columns);
        for (const range of rangesOf(rows)) {
          await fetchArrowRows(bytes, index, { ...range, columns: new Set(columns.keys()) });
          for await (const piece of readPieces(bytes, index, { ...range, columns })) {
            await appendPiece(connection, columns, piece);
          }
        }
        return await work(connection, rowsTableName);
      });
    },
  };
}

function rangesOf(rows: readonly number[]): { rowStart: number; rowEnd: number }[] {
  const ranges: { rowStart: number; rowEnd: number }[] = [];
  for (const row of rows.toSorted((one, other) => one - other)) {
    const last = ranges.at(-1);
    if (last !== undefined && row <= last.rowEnd + nearRows) {
      last.rowEnd = row + 1;
    } else {
      ranges.push({ rowStart: row, rowEnd: row + 1 });
    }
  }
  return ranges;
}

/** What DuckDB does of Arrow shards. Its library is large: loaded where something needs it. */
export interface ArrowByDuckDb extends ShardSql, AsyncDisposable {
  read(shard: OpenArrow, slice: SliceRequest): AsyncGenerator<RecordBatch>;
}

interface ArrowByDuckDbOptions {
  readonly timezone: string;
  readonly open: (file: ShardFile) => Promise<OpenArrow>;
  readonly memory: MemoryBudget;
}

export function openArrowByDuckDb({ timezone, open, memory }: ArrowByDuckDbOptions): ArrowByDuckDb {
  const duckdb = openDuckDbReader({ threads: 1, folders: [], timezone, memoryBytes: memory.duckDbBytes });
  const sql = shardSql(duckdb.pool, arrowTables(duckdb.pool, open));
  return {
    ...sql,
    async *read(shard, slice) {
      await sql.check(slice.projection.expressions);
      yield* onConnection(duckdb.pool, (connection) => readShard(connection, { shard, memory }, slice));
    },
    [Symbol.asyncDispose]: () => duckdb[Symbol.asyncDispose](),
  };
}

async function* readShard(
  connection: DuckDBConnection,
  { shard, memory }: { readonly shard: OpenArrow; readonly memory: MemoryBudget },
  slice: SliceRequest,
): AsyncGenerator<RecordBatch> {
  const { projection, file } = slice;
  const wanted = Array.from(plannedColumns(projection), ([name, type]) => ({ name, type }));
  const columns = tableColumns(file, shard.index, wanted);
  const request = { ...slice, columns, known: shard.known, limits: batchLimits(memory) };
  let next = slice.rowStart;
  for await (const piece of readPieces(shard.bytes, shard.index, request)) {
    for await (const batch of readByTable(connection, { piece, columns, memory }, slice)) {
      next += rowsRead(batch);
      yield batch;
    }
    checkEnd({ ...slice, rowEnd: piece.rowEnd }, next);
  }
  checkEnd(slice, next);
}
