import { reuseColumn } from "../../binding/reuse-column.js";
import type { FixedColumn } from "../../columnar/types.js";
import { type DuckDBConnection, openDuckDb } from "../../duckdb/instance.js";
import { addWanted, joinStored, loadStored, readStored, type StoredColumns } from "../../duckdb/stored-rows.js";
import { openSpool } from "../../s3/spool.js";
import type { StoredRowsJoin, StoredRowsReader, StoredRowsRequest } from "../../scoring/context.js";
import type { AttemptServices } from "../attempt-services.js";
import { limitError } from "./limit-errors.js";
import { spoolRoot } from "../open-store.js";

interface StoredRowsOptions extends Pick<AttemptServices, "writer" | "isDead"> {
  /** The folder of the spec. */
  readonly folder: string;
  readonly threads: number;
  readonly memoryBytes: number;
}

/** Opens a DuckDB that reads rows of an earlier run. It joins them with others, and spills what does not fit in memory. */
export async function openStoredRows(
  { folder, writer, isDead, threads, memoryBytes }: StoredRowsOptions,
  { files, key, outputs }: StoredRowsRequest,
): Promise<StoredRowsReader> {
  const root = spoolRoot(folder, undefined);
  const spool = openSpool({ root, writer, use: "reuse", isDead, maxBytes: Number.POSITIVE_INFINITY });
  await spool.prepare();
  const allowed = { folders: [files.folder] };
  const duckdb = await openDuckDb({ threads, memoryBytes, spillFolder: spool.folder, allowed });
  const connection = await duckdb.connect();
  const columns = { key, outputs, hash: reuseColumn };
  return {
    rowCount: files.rows,
    async *all() {
      try {
        for await (const { rowCount, keys, outputs: predictions, hashes } of readStored(connection, columns, files)) {
          yield { rowCount, keys, predictions, hashes: wordsOf(hashes) };
        }
      } catch (error) {
        throw limitError(error, joining) ?? error;
      }
    },
    async join() {
      const rowCount = await limited(() => loadStored(connection, columns, files, memoryBytes));
      return joinOf(connection, columns, { rowCount, memoryBytes });
    },
    async [Symbol.asyncDispose]() {
      connection.closeSync();
      duckdb[Symbol.dispose]();
      await spool[Symbol.asyncDispose]();
    },
  };
}

function joinOf(
  connection: DuckDBConnection,
  columns: StoredColumns,
  { rowCount, memoryBytes }: { readonly rowCount: number; readonly memoryBytes: number },
): StoredRowsJoin {
  let isFirst = true;
  return {
    rowCount,
    async add(rows, keys) {
      await limited(() => addWanted(connection, columns.key, { rows, keys, isFirst }));
      isFirst = false;
    },
    async *found() {
      if (isFirst) {
        return; // there are no rows
      }
      try {
        for await (const { rows, outputs: predictions, hashes } of joinStored(connection, columns, memoryBytes)) {
          yield { rowCount: rows.length, rows, predictions, hashes: wordsOf(hashes) };
        }
      } catch (error) {
        throw limitError(error, joining) ?? error;
      }
    },
  };
}

const joining = "joining the rows of an earlier run";

/** Runs `work` in DuckDB. @throws JobError MEMORY or DISK where DuckDB reaches a limit */
async function limited<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw limitError(error, joining) ?? error;
  }
}

function wordsOf({ data: { buffer, byteOffset, length } }: FixedColumn): Int32Array {
  return new Int32Array(buffer, byteOffset, length * 2);
}
