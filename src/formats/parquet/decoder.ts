import type { Projection } from "../../models/binding/contract.js";
import type { Decoder, ShardSchema, SliceUnits } from "../format.js";
import { lazyResource } from "../../base/promises.js";
import { type MemoryBudget, mebibytes, memoryBudget } from "../../base/memory-budget.js";
import { namingDecoder } from "../by-format.js";
import { hasFolderColumns, removedRows } from "../planned-columns.js";
import { decodingThreads } from "../unit-sizes.js";
import type { ParquetOptions } from "./duckdb.js";
import { readParquetFooter } from "./footer.js";
import { readFooters } from "./footers.js";
import { verifyPages } from "./pages/page-walk.js";
import { longValueWorkers, withPageBytes, withTextSizes } from "./long-values.js";
import type { PageLimits } from "./pages/storage.js";
import { isUnpacked } from "./pages/page-header.js";
import { parquetUnits } from "./units.js";
import { sliceWindows } from "./windows.js";

/** Parquet: workers read units of simple columns; DuckDB reads everything else, and decodes and casts ahead of us. */
export function openParquetDecoder({
  memory = memoryBudget(mebibytes(512)),
  ...others
}: Omit<ParquetOptions, "memory"> & Partial<Pick<ParquetOptions, "memory">>): Decoder {
  const { threads } = others;
  const options = { ...others, memory };
  const duckdb = lazyResource(async () => {
    const { openParquetByDuckDb } = await import("./duckdb.js"); // and DuckDB's library with it
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
      const texts = await withTextSizes(await readParquetFooter(slice.file), slice, ({ codec }) => !isUnpacked(codec));
      const footer = await withPageBytes(texts, slice);
      const workers = longValueWorkers(footer, slice, { workers: sharing?.workers ?? threads, memory });
      const units = parquetUnits(footer, slice, { limits: limitsOf(memory, workers), sharing });
      if (units === undefined) {
        return undefined;
      }
      const { projection } = slice;
      return {
        units,
        removed: await removedRows(slice.file),
        constants: hasFolderColumns(projection) ? await (await duckdb.open()).constants(slice, 1) : new Map(),
        fitting: (count) =>
          Math.min(
            decodingThreads(count, withoutLists(projection)),
            longValueWorkers(footer, slice, { workers: count, memory }),
          ),
      };
    },
    async *read(slices) {
      const [first, ...more] = slices;
      if (first !== undefined) {
        yield* (await duckdb.open()).read([first, ...more], decodingThreads(threads, first.projection));
      }
    },
    verify: (file, signal) => verifyPages(file, { signal }),
    sql: () => duckdb.open(),
    [Symbol.asyncDispose]: () => duckdb[Symbol.asyncDispose](),
  });
}

/** `withPageBytes` looks up the sizes of pages of lists, which do not have as many rows as others. */
function withoutLists(projection: Projection): Projection {
  return { ...projection, inputs: projection.inputs.filter(({ kind }) => kind !== "list" && kind !== "padded") };
}

/** Pages are mostly of a MiB, or as long as 128 Ki values are. */
const commonPageBytes = mebibytes(16);

/** The limits of each of so many workers. DuckDB reads pages that are larger than that, one at a time. */
function limitsOf({ pageBytes, openPagesBytes, batchBytes }: MemoryBudget, workers: number): PageLimits {
  const fair = Math.max(commonPageBytes, Math.floor(openPagesBytes / workers));
  return { pageBytes: Math.min(pageBytes, fair), batchBytes };
}
