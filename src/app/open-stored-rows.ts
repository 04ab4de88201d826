import { openDuckDb } from "../duckdb/instance.js";
import { addWanted, joinStored, loadStored } from "../duckdb/stored-rows.js";
import { reuseColumn } from "../binding/reuse-column.js";
import { openSpool } from "../s3/spool.js";
import type { StoredRowsJoin, StoredRowsRequest } from "../scoring/context.js";
import type { AttemptServices } from "./attempt-services.js";
import { spoolRoot } from "./open-store.js";

interface StoredRowsOptions extends Pick<AttemptServices, "writer" | "isDead"> {
  /** The folder of the spec. */
  readonly folder: string;
  readonly threads: number;
  readonly memoryBytes: number;
}

/** Opens a DuckDB that joins rows with those of an earlier run, and spills what does not fit in memory. */
export async function openStoredRows(
  { folder, writer, isDead, threads, memoryBytes }: StoredRowsOptions,
  { files, key, outputs }: StoredRowsRequest,
): Promise<StoredRowsJoin> {
  const root = spoolRoot(folder, undefined);
  const spool = openSpool({ root, writer, use: "reuse", isDead, maxBytes: Number.POSITIVE_INFINITY });
  await spool.prepare();
  const allowed = { folders: [files.folder] };
  const duckdb = await openDuckDb({ threads, memoryBytes, spillFolder: spool.folder, allowed });
  const connection = await duckdb.connect();
  const close = async (): Promise<void> => {
    connection.closeSync();
    duckdb[Symbol.dispose]();
    await spool[Symbol.asyncDispose]();
  };
  const columns = { key, outputs, hash: reuseColumn };
  try {
    const rowCount = await loadStored(connection, columns, files);
    let isFirst = true;
    return {
      rowCount,
      async add(rows, keys) {
        await addWanted(connection, key, { rows, keys, isFirst });
        isFirst = false;
      },
      async *found() {
        if (isFirst) {
          return; // there are no rows
        }
        for await (const { rows, outputs: predictions, hashes } of joinStored(connection, columns)) {
          const { data } = hashes;
          yield { rows, predictions, hashes: new Int32Array(data.buffer, data.byteOffset, data.length * 2) };
        }
      },
      [Symbol.asyncDispose]: close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}
