import { reuseColumn } from "../models/binding/contract.js";
import type { FixedColumn } from "../columns/types.js";
import { evaluateRows } from "../duckdb/evaluate.js";
import { openDuckDb, openDuckDbLazily } from "../duckdb/instance.js";
import { jsonRows } from "../duckdb/json-rows.js";
import { type KeyedColumns, type KeyValues, keyedFiles } from "../duckdb/key-values.js";
import { type RowJoin, addRows, compareRows, loadRows, loadRuns } from "../duckdb/row-join.js";
import { firstLine } from "../duckdb/sql.js";
import { StreamEndedError, readStored } from "../duckdb/stored-rows.js";
import { unpackSnappy, unpackZstdBlocks } from "../formats/codecs.js";
import type { LakeTools } from "../sources/lake/source.js";
import type { ParquetOptions } from "../formats/parquet/duckdb.js";
import { readParquetFooter } from "../formats/parquet/footer.js";
import {
  type GoldenReader,
  type RowJoiner,
  type StoredRowsReader,
  type StoredRowsRequest,
  silentLog,
} from "../flow/opened-job.js";
import type { StoredSpans, StoredTable } from "../run/lifecycle/span-record.js";
import { JobError, messageOf } from "../base/errors.js";
import { openSpool, spoolRoot } from "../base/spool.js";
import { attemptServices } from "./attempt.js";

interface JoinOptions {
  readonly folders: readonly string[];
  readonly threads: number;
  readonly memoryBytes: number;
}

/** Each thread that joins pins blocks of its own: two of them sometimes ran out of 64 MiB. */
const bytesPerThread = 64 * 1024 * 1024;

/** Opens what the metadata of lake tables in a folder is read with. */
export async function openLakeTools(folder: string): Promise<LakeTools & AsyncDisposable> {
  const duckdb = openDuckDbLazily({ threads: 1, memoryBytes: 512 * 1024 * 1024, allowed: { folders: [folder] } });
  return await Promise.resolve({
    query: (path, sql) => jsonRows(duckdb, path, sql),
    unpack: unpackAvro,
    [Symbol.asyncDispose]: () => duckdb[Symbol.asyncDispose](),
  });
}

/** Unpacks a block of an Avro file of a codec that Node lacks: Snappy's ends with a CRC. */
export function unpackAvro(codec: string, packed: Buffer, mostBytes: number): Uint8Array {
  if (codec === "zstandard") {
    return unpackZstdBlocks(packed, mostBytes);
  }
  if (codec !== "snappy") {
    throw new RangeError(`blocks are packed with ${codec}`);
  }
  let [length, shift, at] = [0, 0, 0];
  for (; (packed[at] ?? 0) >= 0x80; at += 1, shift += 7) {
    length += ((packed[at] ?? 0) & 0x7f) * 2 ** shift;
  }
  length += (packed[at] ?? 0) * 2 ** shift;
  if (length > mostBytes) {
    throw new RangeError(`a block has ${length} bytes`);
  }
  const unpacked = new Uint8Array(length);
  unpackSnappy(packed.subarray(0, -4), unpacked);
  return unpacked;
}

/** Opens a DuckDB that joins files of these folders, and spills what does not fit in memory. */
export async function openRowJoin({ folders, threads, memoryBytes }: JoinOptions): Promise<RowJoiner> {
  const { writer, isDead } = attemptServices({ retry: { max_seconds: 0 } }, silentLog, new AbortController().signal);
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
    loadRuns: (a, b) => guarded(() => loadRuns(join, a, b), "columns" in a.files ? tableHint : fileHint),
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

const ofFiles = /^(IO|Invalid Input|Invalid|Conversion|Binder) Error/;

/** An error of DuckDB is reported as one of the files, the memory or the disk. */
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

/** The key of a Parquet file's metadata that names the model which computed its predictions. */
const modelKey = "infer_batch.model_sha256";

export async function openGoldenReader(options: ParquetOptions): Promise<GoldenReader> {
  const { openParquetDecoder } = await import("../formats/parquet/decoder.js");
  const decoder = openParquetDecoder(options);
  return {
    decoder,
    modelSha256: async (file) => (await readParquetFooter(file)).metadata.get(modelKey),
    [Symbol.asyncDispose]: () => decoder[Symbol.asyncDispose](),
  };
}

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

/** Yields the files of a run with their rows as keys and values. */
export async function* keyedFilesOf(
  { threads, memoryBytes }: { readonly threads: number; readonly memoryBytes: number },
  files: StoredTable | StoredSpans,
  named: KeyedColumns,
): AsyncGenerator<() => AsyncGenerator<KeyValues>> {
  using duckdb = await openDuckDb({ threads, memoryBytes, allowed: { folders: [files.folder] } });
  const connection = await duckdb.connect();
  try {
    yield* keyedFiles(connection, files, named);
  } catch (error) {
    throw limitError(error, "reading the rows of a run") ?? error;
  } finally {
    connection.closeSync();
  }
}

function wordsOf({ data: { buffer, byteOffset, length } }: FixedColumn): Int32Array {
  return new Int32Array(buffer, byteOffset, length * 2);
}

const limits = [
  {
    said: /^Out of Memory Error/,
    code: "MEMORY",
    hint: "raise engine.memory, or set TMPDIR to a folder with more free space",
  },
  { said: /^IO Error.*(No space|write)/i, code: "DISK", hint: "set TMPDIR to a folder with more free space" },
] as const;

function limitError(error: unknown, doing: string): JobError | undefined {
  const said = firstLine(messageOf(error));
  if (error instanceof StreamEndedError) {
    const hint =
      "run the same command again; if it ends like this again, raise engine.memory, or set TMPDIR to a folder with more free space";
    return new JobError("MEMORY", `${doing}: ${said}`, { hint, cause: error });
  }
  const found = error instanceof JobError ? undefined : limits.find((limit) => limit.said.test(said));
  return found && new JobError(found.code, `${doing}: ${said}`, { hint: found.hint, cause: error });
}
