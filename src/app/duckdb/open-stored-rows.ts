import { reuseColumn } from "../../binding/contract.js";
import type { FixedColumn } from "../../columnar/types.js";
import { openDuckDb } from "../../duckdb/instance.js";
import { readStored } from "../../duckdb/stored-rows.js";
import type { StoredRowsReader, StoredRowsRequest } from "../../scoring/context.js";
import { limitError } from "./limit-errors.js";

/** Opens a DuckDB that reads rows of an earlier run. */
export async function openStoredRows(
  { threads, memoryBytes }: { readonly threads: number; readonly memoryBytes: number },
  { files, key, outputs }: StoredRowsRequest,
): Promise<StoredRowsReader> {
  const duckdb = await openDuckDb({ threads, memoryBytes, allowed: { folders: [files.folder] } });
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
        throw limitError(error, "reading the rows of an earlier run") ?? error;
      }
    },
    [Symbol.asyncDispose]() {
      connection.closeSync();
      duckdb[Symbol.dispose]();
      return Promise.resolve();
    },
  };
}

function wordsOf({ data: { buffer, byteOffset, length } }: FixedColumn): Int32Array {
  return new Int32Array(buffer, byteOffset, length * 2);
}
