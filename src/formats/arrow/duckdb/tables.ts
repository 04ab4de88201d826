import { DuckDBDataChunk } from "@duckdb/node-api";
import type { Column, ColumnType } from "../../../columnar/types.js";
import type { ConnectionPool, DuckDBConnection } from "../../../duckdb/instance.js";
import { duckDbTypeOf, writeColumn } from "../../../duckdb/vectors.js";
import { quoteName, sqlTypeOf } from "../../../duckdb/sql.js";
import { JobError } from "../../../util/errors.js";
import { readPieces } from "../ipc/batches.js";
import type { Piece } from "../../../columnar/piece.js";
import type { ArrowIndex, OpenArrow } from "../ipc/shards.js";
import { columnTypeOf, showField } from "../ipc/types.js";
import { fetchArrowRows } from "../ipc/windows.js";
import { rowNumberColumn } from "../../sql/slice-sql.js";
import { untypedNulls } from "../../planned-columns.js";
import type { ShardFile } from "../../port.js";
import type { ShardTables, WantedColumn } from "../../sql/shard-tables.js";

/** Rows of one DuckDB vector. */
const vectorRows = 2048;

/** A temporary table; each connection has one at most, so that its name is free. */
export const rowsTableName = "arrow_rows";

/** Columns of a table, with the type that each has. */
export type TableColumns = ReadonlyMap<string, ColumnType>;

/** Returns the types of some of a shard's columns. A column that has only NULLs gets the type in `wanted`. */
export function tableColumns(file: ShardFile, { schema }: ArrowIndex, wanted: readonly WantedColumn[]): TableColumns {
  return new Map(
    wanted.map(({ name, type }) => {
      const field = schema.fields.find((candidate) => candidate.name === name);
      const known = field && (columnTypeOf(field) ?? (field.type.kind === "null" ? (type ?? untypedNulls) : undefined));
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

export async function createTable(connection: DuckDBConnection, columns: TableColumns): Promise<void> {
  const definitions = Array.from(columns, ([name, type]) => `${quoteName(name)} ${sqlTypeOf(type)}`);
  await connection.run(
    `CREATE OR REPLACE TEMP TABLE ${rowsTableName} (${[`${rowNumberColumn} BIGINT`, ...definitions].join(", ")})`,
  );
}

/** Adds rows of a piece, with their numbers. */
export async function appendPiece(connection: DuckDBConnection, columns: TableColumns, piece: Piece): Promise<void> {
  const appender = await connection.createAppender(rowsTableName);
  const chunk = DuckDBDataChunk.create([duckDbTypeOf("int64"), ...Array.from(columns.values(), duckDbTypeOf)]);
  const rows = piece.rowEnd - piece.rowStart;
  const numbers = new BigInt64Array(rows);
  for (let row = 0; row < rows; row += 1) {
    numbers[row] = BigInt(piece.rowStart + row);
  }
  const values: Column[] = [{ kind: "fixed", elementsPerValue: 1, data: numbers, valid: undefined }];
  for (const name of columns.keys()) {
    const column = piece.columns.get(name);
    if (column === undefined) {
      throw new RangeError(`column ${name} was not read`);
    }
    values.push(column);
  }
  for (let from = 0; from < rows; from += vectorRows) {
    const to = Math.min(from + vectorRows, rows);
    chunk.reset();
    for (const [index, column] of values.entries()) {
      writeColumn(chunk, index, column, { from, to });
    }
    chunk.rowCount = to - from;
    appender.appendDataChunk(chunk);
  }
  appender.closeSync();
}

/** Rows that are as near as this are fetched by one read. */
const nearRows = 64;

/** Rows are decoded and put into a table of DuckDB's. */
export function arrowTables(pool: ConnectionPool, open: (file: ShardFile) => Promise<OpenArrow>): ShardTables {
  return {
    async use(file, { rows, columns: wanted }, work) {
      await using shard = await open(file);
      const { bytes, index } = shard;
      const columns = tableColumns(file, index, wanted);
      return await pool.use(async (connection) => {
        await createTable(connection, columns);
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
