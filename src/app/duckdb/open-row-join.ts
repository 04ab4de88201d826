import { openDuckDb } from "../../duckdb/instance.js";
import { firstLine } from "../../duckdb/sql.js";
import { evaluateRows } from "../../duckdb/evaluate.js";
import {
  addRows,
  compareRows,
  loadRejected,
  loadRows,
  loadSpans,
  missedRows,
  type RowJoin,
} from "../../duckdb/row-join.js";
import type { RowJoiner } from "../../scoring/context.js";
import { openSpool, spoolRoot } from "../../util/spool.js";
import { JobError, messageOf } from "../../util/errors.js";
import { attemptServices } from "../attempt-services.js";
import { limitError } from "./limit-errors.js";

interface JoinOptions {
  /** Folders of the files. */
  readonly folders: readonly string[];
  readonly threads: number;
  readonly memoryBytes: number;
}

/** Each thread that joins pins blocks of its own: two of them sometimes ran out of 64 MiB. */
const bytesPerThread = 64 * 1024 * 1024;

/** Opens a DuckDB that joins files of these folders, and spills what does not fit in memory. */
export async function openRowJoin({ folders, threads, memoryBytes }: JoinOptions): Promise<RowJoiner> {
  const log = { info() {}, warn() {}, debug() {} };
  const { writer, isDead } = attemptServices({ retry: { max_seconds: 0 } }, log, new AbortController().signal);
  const root = spoolRoot(process.cwd(), undefined);
  const spool = openSpool({ root, writer, use: "keys", isDead, maxBytes: Number.POSITIVE_INFINITY });
  await spool.prepare();
  const duckdb = await openDuckDb({
    threads: Math.max(1, Math.min(threads, Math.floor(memoryBytes / bytesPerThread))),
    memoryBytes,
    spillFolder: spool.folder,
    allowed: { folders },
    settings: { preserve_insertion_order: "false" }, // rows are joined and numbered by key
  });
  const join: RowJoin = { connection: await duckdb.connect(), memoryBytes, columns: { a: [], b: [] } };
  return {
    load: (side, rows) => guarded(() => loadRows(join, side, rows), "columns" in rows ? tableHint : fileHint),
    loadRejected: (side, rows) => guarded(() => loadRejected(join, side, rows)),
    missed: () => guarded(() => missedRows(join)),
    loadSpans: (a, b) => guarded(() => loadSpans(join, a, b)),
    add: (side, rows) => guarded(() => addRows(join, side, rows)),
    evaluate: (request) => guarded(() => evaluateRows(join, request)),
    compare: (request) => guarded(() => compareRows(join, request)),
    async [Symbol.asyncDispose]() {
      join.connection.closeSync();
      duckdb[Symbol.dispose]();
      await spool[Symbol.asyncDispose]();
    },
  };
}

const fileHint = "a file is no Parquet file, was changed meanwhile, or has other columns than the other files";
const tableHint =
  "a value cannot be read as its column's type, such as NaN in a numeric column, or a row has more than 2 MB";

const comparing = "comparing the rows";

/** Errors of DuckDB that are those of the files. */
const ofFiles = /^(IO|Invalid Input|Invalid|Conversion|Binder) Error/;

/** Runs `work`; an error of DuckDB is reported as one of the files, the memory or the disk. */
async function guarded<T>(work: () => Promise<T>, badRowsHint = fileHint): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const said = firstLine(messageOf(error));
    const isOfFiles = !(error instanceof JobError) && ofFiles.test(said);
    throw (
      limitError(error, comparing) ??
      (isOfFiles ? new JobError("SHARD_CORRUPT", `${comparing}: ${said}`, { hint: badRowsHint, cause: error }) : error)
    );
  }
}
