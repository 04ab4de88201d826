import type { Decoder, ShardSchema, SliceUnits } from "../port.js";
import { whenNeeded } from "../../util/when-needed.js";
import { namingDecoder } from "../naming.js";
import { hasFolderColumns } from "../planned-columns.js";
import type { DuckDbReaderOptions } from "../sql/reader.js";
import { decodingThreads } from "../thread-memory.js";
import { readFooter } from "./footer/footer.js";
import { readFooters } from "./footer/footers.js";
import { verifyPages } from "./pages/verify.js";
import { parquetUnits } from "./units.js";
import { sliceWindows } from "./windows.js";

/** Parquet: workers read units of simple columns; DuckDB reads everything else, and decodes and casts ahead of us. */
export function openParquetDecoder(options: DuckDbReaderOptions): Decoder {
  const { threads } = options;
  const duckdb = whenNeeded(async () => {
    const { openParquetByDuckDb } = await import("./duckdb/decoder.js"); // and DuckDB's library with it
    return openParquetByDuckDb(options);
  });
  const schemas = new Map<string, ShardSchema>();
  return namingDecoder({
    footers: (files) => readFooters(async () => (await duckdb.open()).schemas, files, schemas),
    windows: sliceWindows,
    async units(slice, { isAlone, sharing }): Promise<SliceUnits | undefined> {
      if (!isAlone) {
        return undefined; // DuckDB reads several small shards in one query
      }
      const units = parquetUnits(await readFooter(slice.file), slice, sharing);
      if (units === undefined) {
        return undefined;
      }
      const { projection } = slice;
      const hasConstants = hasFolderColumns(projection);
      return {
        units,
        constants: hasConstants ? await (await duckdb.open()).constants(slice) : new Map(),
        fitting: (workers) => decodingThreads(workers, projection),
      };
    },
    async *read(slices) {
      const [first, ...others] = slices;
      if (first !== undefined) {
        yield* (await duckdb.open()).read([first, ...others], decodingThreads(threads, first.projection));
      }
    },
    verify: (file, signal) => verifyPages(file, { signal }),
    bindExpression: async (request) => await (await duckdb.open()).bindExpression(request),
    describeRows: async (request) => await (await duckdb.open()).describeRows(request),
    describeFailure: async (request) => await (await duckdb.open()).describeFailure(request),
    [Symbol.asyncDispose]: () => duckdb[Symbol.asyncDispose](),
  });
}
