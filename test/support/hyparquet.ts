import { asyncBufferFromFile, parquetReadObjects } from "hyparquet";
import { compressors } from "hyparquet-compressors";
import type { Row } from "./parquet.js";

/** Rows of exactly these files, one after the other, through code that shares none with the writer. */
export async function readIndependently(paths: readonly string[], columns?: readonly string[]): Promise<Row[]> {
  const rows: Row[] = [];
  for (const path of paths) {
    const file = await asyncBufferFromFile(path);
    const wanted = columns === undefined ? {} : { columns: [...columns] };
    rows.push(...(await parquetReadObjects({ file, compressors, ...wanted })));
  }
  return rows;
}
