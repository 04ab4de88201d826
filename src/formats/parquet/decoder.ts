import { whenNeeded } from "../../util/when-needed.js";
import { openBeside } from "../../scoring/workers/beside.js";
import type { Unit } from "../../scoring/workers/decode-protocol.js";
import type { DuckDbReaderOptions } from "../sql/reader.js";
import { namingDecoder } from "../naming.js";
import { readFooter } from "./footer/footer.js";
import { readFooters } from "./footer/footers.js";
import { verifyPages } from "./pages/verify.js";
import { parquetUnits } from "./units.js";
import { sliceWindows } from "./windows.js";
import type { Decoder, ShardSchema } from "../port.js";
import { decodingThreads } from "../thread-memory.js";

/** Parquet: simple columns in threads of others, everything else through DuckDB, which decodes and casts ahead of us. */
export function openParquetDecoder(options: DuckDbReaderOptions): Decoder {
  const { threads } = options;
  const duckdb = whenNeeded(async () => {
    const { openParquetByDuckDb } = await import("./duckdb/decoder.js"); // and DuckDB's library with it
    return openParquetByDuckDb(options);
  });
  const beside = openBeside(threads);
  const schemas = new Map<string, ShardSchema>();
  return namingDecoder({
    footers: (files) => readFooters(async () => (await duckdb.open()).schemas, files, schemas),
    windows: sliceWindows,
    async *read(slices, scoring, turn) {
      const [first, ...others] = slices;
      if (first === undefined) {
        return;
      }
      const fitting = (count: number): number => decodingThreads(count, first.projection);
      const units = async (): Promise<Unit[] | undefined> => parquetUnits(await readFooter(first.file), first, scoring);
      const how = { units, constants: async () => (await duckdb.open()).constants(first), fitting };
      const rowStart = others.length === 0 ? yield* beside.read(first, how, { scoring, turn }) : first.rowStart;
      if (rowStart < first.rowEnd) {
        await turn?.near;
        yield* (await duckdb.open()).read([{ ...first, rowStart }, ...others], fitting(threads));
      }
    },
    verify: (file, signal) => verifyPages(file, { signal }),
    bindExpression: async (request) => await (await duckdb.open()).bindExpression(request),
    describeRows: async (request) => await (await duckdb.open()).describeRows(request),
    describeFailure: async (request) => await (await duckdb.open()).describeFailure(request),
    async [Symbol.asyncDispose]() {
      await beside[Symbol.asyncDispose]();
      await duckdb[Symbol.asyncDispose]();
    },
  });
}
