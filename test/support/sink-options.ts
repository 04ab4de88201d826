import { tmpdir } from "node:os";
import { join } from "node:path";
import { openSpool, type Spool } from "#src/base/spool.js";
import { openDuckDbLazily } from "#src/duckdb/instance.js";
import { openDeltaSink } from "#src/targets/delta.js";
import type { LakeSinkOptions } from "#src/targets/lake.js";
import { type BeyondFolder, inFolder } from "#src/targets/parquet/parts.js";
import { openParquetSink, type ParquetSinkOptions } from "#src/targets/parquet/sink.js";
import type { Sink } from "#src/targets/target.js";
import { type FileSystem, nodeFileSystem, openDiskStore } from "#src/stores/disk.js";

/** One DuckDB for all sinks of a process: opening it takes longer than most of what they do with it. */
export const sharedDuckDb = {
  ...openDuckDbLazily({ threads: 1, allowed: { folders: ["/"] } }),
  [Symbol.asyncDispose]: () => Promise.resolve(),
};

const openKeyDuckDb = (): Promise<typeof sharedDuckDb> => Promise.resolve(sharedDuckDb);

export function testSpool(writer: string): Spool {
  const root = join(tmpdir(), `infer-batch-test-rows-${process.pid}`);
  return openSpool({ root, writer, use: "rows", isDead: () => false, maxBytes: Number.POSITIVE_INFINITY });
}

/** Options that tests of the Parquet sink do not vary. */
export const sinkOptions = {
  target: "out",
  uri: "out",
  failure: "DISK",
  compression: "uncompressed",
  duckdb: sharedDuckDb,
  openKeyDuckDb,
  otherRunFolders: { root: "", job: [], series: [] },
  rehearse: () => Promise.resolve([]),
  warn: () => {},
} as const;

export interface DiskSinkOptions extends Partial<ParquetSinkOptions> {
  readonly folder: string;
  readonly writer: string;
  readonly fs?: FileSystem;
  readonly isDead?: (writer: string) => boolean;
}

export function openDiskSink(options: DiskSinkOptions): Sink {
  return openParquetSink({ ...onDisk(options), ...inFolder });
}

export interface DiskTableOptions
  extends Omit<DiskSinkOptions, "folder">,
    Partial<Pick<LakeSinkOptions, "allowDuplicates" | "folder">> {
  readonly table: string;
}

/** Opens a Delta table in a folder. A new run may add its rows to it. */
export function openDiskTable({ table, ...options }: DiskTableOptions): Sink {
  const folder = join(table, "_infer-batch/job-000000000000");
  return openDeltaSink({
    mode: "append",
    create: true,
    partition: {},
    allowDuplicates: true,
    ...onDisk({ folder, ...options }),
    ...(options.allowDuplicates === undefined ? {} : { allowDuplicates: options.allowDuplicates }),
    table,
  });
}

function onDisk({
  fs = nodeFileSystem,
  isDead = () => false,
  ...options
}: DiskSinkOptions): Omit<ParquetSinkOptions, keyof BeyondFolder> {
  const { writer } = options;
  const storeAt = (root: string): ReturnType<typeof openDiskStore> => openDiskStore({ root, fs, writer, isDead });
  const spool = testSpool(writer);
  const close = async (): Promise<void> => await spool[Symbol.asyncDispose]();
  return { ...sinkOptions, close, spool, storeAt, ...options };
}
