import { openDuckDb } from "../../duckdb/instance.js";
import { type KeyColumn, keyedRows, keyedTexts, loadKeys, rowsWithout } from "../../duckdb/key-match.js";
import type { KeyList } from "../../publish/erasure.js";
import type { OpenRowFinder, RowFinder } from "../../run/erase.js";
import { JobError } from "../../util/errors.js";
import { usableCores } from "../process-limits.js";

/** Makes a function that opens a DuckDB which finds the rows of some keys in Parquet files. @param found collects the keys that were found, by index */
export function rowFinders(
  list: KeyList,
  { memoryBytes, found }: { readonly memoryBytes: number; readonly found: Set<number> },
): OpenRowFinder {
  return async (folder, columns) => {
    const duckdb = await openDuckDb({ threads: usableCores(), memoryBytes, allowed: { folders: [folder] } });
    const connection = await duckdb.connect();
    const table = { connection, columns };
    const wrong = await loadKeys(table, list.keys);
    if (wrong !== undefined) {
      connection.closeSync();
      duckdb[Symbol.dispose]();
      throw wrongKey(list, columns, wrong);
    }
    const finder: RowFinder = {
      rowsIn: async (path) => rowsOf(await keyedRows(table, path), found),
      rejected: async (texts) => rowsOf(await keyedTexts(table, texts), found),
      rowsWithout: (path, request) => rowsWithout(connection, path, request),
      async [Symbol.asyncDispose]() {
        connection.closeSync();
        await Promise.resolve(duckdb[Symbol.dispose]());
      },
    };
    return finder;
  };
}

/** Returns the rows, and adds their keys to `found`. */
function rowsOf({ rows, keys }: Awaited<ReturnType<typeof keyedRows>>, found: Set<number>): readonly number[] {
  for (const key of keys) {
    found.add(key);
  }
  return rows;
}

function wrongKey({ placeOf }: KeyList, columns: readonly KeyColumn[], index: number): JobError {
  const types = columns.map(({ name, type }) => `${name} ${typeof type === "string" ? type : type.kind}`);
  return new JobError("USAGE", `reading the keys: ${placeOf(index)} is not a value of ${types.join(", ")}`, {
    hint: "each key is a value of the output column that --key names, such as 17 for an integer",
  });
}
