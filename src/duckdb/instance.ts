import type { DuckDBConnection } from "@duckdb/node-api";
import { whenNeeded } from "../util/when-needed.js";
import { quoteText } from "./sql.js";
import { awaitedLater } from "../util/promises.js";

export interface DuckDbOptions {
  readonly threads: number;
  /** The only files that SQL may touch, as absolute paths; folders are open with all that lies in them. */
  readonly allowed: { readonly files?: readonly string[]; readonly folders?: readonly string[] };
  /** Settings of every connection, made before the configuration is locked. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Connections to make before that, with settings that cannot be global; `connect` hands them out first. */
  readonly prepared?: { readonly connections: number; readonly settings: Readonly<Record<string, string>> };
}

/** What connects to a DuckDB of our own: in memory, without extensions, telemetry or any file but those allowed. */
export interface DuckDbAccess {
  connect(): Promise<DuckDBConnection>;
  /** Begins to open it. What is in the way, `connect` tells. */
  load(): void;
}

export interface DuckDb extends Pick<DuckDbAccess, "connect">, Disposable {}

/** Opened when something first connects to it: that takes some 20 ms. */
export function duckDbWhenNeeded(options: DuckDbOptions): DuckDbAccess & AsyncDisposable {
  const duckdb = whenNeeded(() => openDuckDb(options));
  return {
    connect: async () => await (await duckdb.open()).connect(),
    load() {
      void awaitedLater(duckdb.open());
    },
    [Symbol.asyncDispose]: () => duckdb[Symbol.asyncDispose](),
  };
}

export async function openDuckDb({ threads, allowed, settings = {}, prepared }: DuckDbOptions): Promise<DuckDb> {
  // Its library is large: what needs no DuckDB, and what can be begun before, does not wait for it.
  const { DuckDBInstance } = await import("@duckdb/node-api");
  const instance = await DuckDBInstance.create(":memory:", {
    threads: String(threads),
    autoinstall_known_extensions: "false",
    autoload_known_extensions: "false",
  });
  const connection = await instance.connect();
  const { files = [], folders = [] } = allowed;
  const all: Record<string, string> = {
    ...settings,
    preserve_insertion_order: "true",
    // A GeoParquet column stays the bytes that it is in the file: DuckDB refuses all of a file whose "geo" metadata it
    // does not understand, such as that of GeoParquet 0.x.
    enable_geoparquet_conversion: "false",
    // It keeps what was read of each file for as long as there is memory (20 KiB a tiny shard, and more of larger
    // ones), and gives a file's old bytes when it was written to within the same second. Nothing is read twice here.
    enable_external_file_cache: "false",
    // A temporary folder in the working directory would be a surprise; spans are sized to fit in memory.
    temp_directory: "''",
    allowed_paths: `[${files.map(quoteText).join(", ")}]`,
    allowed_directories: `[${folders.map(quoteText).join(", ")}]`,
  };
  for (const [name, value] of Object.entries(all)) {
    await connection.run(`SET GLOBAL ${name} = ${value}`);
  }
  const ready: DuckDBConnection[] = [];
  while (ready.length < (prepared?.connections ?? 0)) {
    const one = await instance.connect();
    for (const [name, value] of Object.entries(prepared?.settings ?? {})) {
      await one.run(`SET SESSION ${name} = ${value}`);
    }
    ready.push(one);
  }
  await connection.run("SET GLOBAL enable_external_access = false");
  await connection.run("SET GLOBAL lock_configuration = true");
  connection.closeSync();
  return {
    connect: async () => ready.pop() ?? (await instance.connect()),
    [Symbol.dispose]() {
      for (const one of ready) {
        one.closeSync();
      }
      instance.closeSync();
    },
  };
}

export type { DuckDBConnection };
