import { quoteText } from "../base/sql.js";
import { readFileSync, readdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import type { DuckDBConnection } from "@duckdb/node-api";
import { JobError, isOutOfFiles } from "../base/errors.js";
import { lazyResource } from "../base/promises.js";
import { exactGlob } from "./sql.js";

/** How to open a DuckDB instance. */
export interface DuckDbOptions {
  readonly threads: number;
  /** DuckDB's memory limit in bytes; default: DuckDB's own. */
  readonly memoryBytes?: number | undefined;
  /** A folder for data that does not fit in memory; default: none, so a query that needs more memory fails. */
  readonly spillFolder?: string | undefined;
  /** The only files that SQL may access, as absolute paths; a folder includes all files below it. */
  readonly allowed: { readonly files?: readonly string[]; readonly folders?: readonly string[] };
  /** Settings of every connection. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Connections with settings of their own, which cannot be set after the lock; `connect` returns these first. */
  readonly prepared?: { readonly connections: number; readonly settings: Readonly<Record<string, string>> };
}

/** A locked-down DuckDB in memory: no extensions, no telemetry, no files but those allowed. */
export interface DuckDbAccess {
  connect(): Promise<DuckDBConnection>;
}

/** An open DuckDB instance. */
export interface DuckDb extends Pick<DuckDbAccess, "connect">, Disposable {}

/** Makes an instance that opens on first use, because opening takes about 20 ms. */
export function openDuckDbLazily(options: DuckDbOptions): DuckDbAccess & AsyncDisposable {
  const duckdb = lazyResource(() => openDuckDb(options));
  return {
    connect: async () => await (await duckdb.open()).connect(),
    [Symbol.asyncDispose]: () => duckdb[Symbol.asyncDispose](),
  };
}

/**
 * The memory limit does not count vectors. DuckDB's allocator keeps freed memory until 512 MiB are freed at once: lists of
 * a million floats took twice their memory.
 */
function memorySettings(bytes: number): Record<string, string> {
  return { memory_limit: sizeText(bytes), allocator_bulk_deallocation_flush_threshold: sizeText(bytes / 4) };
}

function sizeText(bytes: number): string {
  return quoteText(`${Math.floor(bytes / 1024)}KiB`);
}

/** They are set before access to other files and the configuration are locked. */
function globalSettings({
  memoryBytes,
  spillFolder = "",
  allowed,
  settings = {},
}: DuckDbOptions): Record<string, string> {
  const { files = [], folders = [] } = allowed;
  return {
    preserve_insertion_order: "true",
    // Else those of the machine and its locale: another one would read other times, and have other years.
    TimeZone: "'UTC'",
    Calendar: "'gregorian'",
    ...settings,
    ...(memoryBytes === undefined ? {} : memorySettings(memoryBytes)),
    // A GeoParquet column stays bytes: DuckDB refuses a whole file whose "geo" metadata it does not understand, such as
    // that of GeoParquet 0.x.
    enable_geoparquet_conversion: "false",
    // Statistics of a file are no statistics of its values: writers leave NaN out of them, and some write them wrong.
    // A common subexpression is taken out of TRY, so that its failure on a row fails the query.
    disabled_optimizers: "'statistics_propagation,common_subexpressions'",
    // The cache keeps what was read of each file while there is memory (20 KiB for a tiny shard, more for larger ones),
    // and returns old bytes of a file that was rewritten within the same second. Here nothing is read twice.
    enable_external_file_cache: "false",
    // By default DuckDB would create a temporary folder in the working directory. Spans are sized to fit in memory.
    temp_directory: quoteText(spillFolder),
    allowed_paths: listText(files),
    allowed_directories: listText(folders),
  };
}

/** Paths as SQL, also as the globs that they are read by: access is granted by the text of a path. */
function listText(paths: readonly string[]): string {
  return `[${paths.flatMap((path) => [path, exactGlob(path)].map(quoteText)).join(", ")}]`;
}

/** Opens a DuckDB instance, and locks its configuration. */
export async function openDuckDb(options: DuckDbOptions): Promise<DuckDb> {
  const { threads, prepared } = options;
  // Imported here: the library is large, and what does not need DuckDB should not wait for it.
  const { DuckDBInstance } = await import("@duckdb/node-api");
  // DuckDB reads the memory limit of the control group when it is opened. It aborts the process if it cannot.
  refuseFewFiles("opening DuckDB");
  const instance = await DuckDBInstance.create(":memory:", {
    threads: String(threads),
    autoinstall_known_extensions: "false",
    autoload_known_extensions: "false",
  });
  const connection = await instance.connect();
  // As one text: a statement at a time took a tenth of the time of opening.
  await connection.run(
    Object.entries(globalSettings(options))
      .map(([name, value]) => `SET GLOBAL ${name} = ${value}`)
      .join(";"),
  );
  const ready: DuckDBConnection[] = [];
  while (ready.length < (prepared?.connections ?? 0)) {
    const one = await instance.connect();
    for (const [name, value] of Object.entries(prepared?.settings ?? {})) {
      await one.run(`SET SESSION ${name} = ${value}`);
    }
    ready.push(one);
  }
  await connection.run("SET GLOBAL enable_external_access = false; SET GLOBAL lock_configuration = true");
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

/** Connections to one instance. Each stream needs its own: a second query on a connection silently truncates the first. */
export type ConnectionPool = Omit<ReturnType<typeof createConnectionPool>, "close">;

/** Makes an empty pool. `close` closes its idle connections. */
export function createConnectionPool(duckdb: Pick<DuckDbAccess, "connect">) {
  const idle: DuckDBConnection[] = [];
  const acquire = async (): Promise<DuckDBConnection> => idle.pop() ?? (await duckdb.connect());
  const release = (connection: DuckDBConnection): void => void idle.push(connection);
  return {
    acquire,
    release,
    /** Runs `work` with a connection that is released at its end. */
    async use<T>(work: (connection: DuckDBConnection) => Promise<T>): Promise<T> {
      const connection = await acquire();
      try {
        return await work(connection);
      } finally {
        release(connection);
      }
    },
    close() {
      for (const connection of idle) {
        connection.closeSync();
      }
    },
  };
}

/** What to do about the limit of open files. */
export const openFilesHint =
  "raise the limit of open files (`ulimit -n`, LimitNOFILE in systemd), then run the same command again";

interface OpenFiles {
  readonly limit: number;
  readonly open: number;
}

/** Sockets and pipes included. @throws Error EMFILE or ENFILE if there is no file left to count with */
function openFiles(): OpenFiles {
  try {
    const [, limit = ""] = /^Max open files +(\d+) /m.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
    const open = readdirSync("/proc/self/fd").length - 1; // without the folder itself
    return { limit: limit === "" ? Number.POSITIVE_INFINITY : Number(limit), open };
  } catch (error) {
    if (isOutOfFiles(error)) {
      throw error;
    }
    return { limit: Number.POSITIVE_INFINITY, open: 0 }; // not Linux
  }
}

/** Files that other threads may open at the same moment: some for all of them, and some for each thread. */
const sparedFiles = 16;
const filesPerThread = 4;

/**
 * Checks that enough files may be opened. Call it before native code that aborts the process when it cannot open a
 * file.
 * @throws JobError DISK if other threads could use up the limit of open files during that call
 * @public so that tests set a limit
 */
export function refuseFewFiles(act: string, { limit, open } = openFiles(), cores = availableParallelism()): void {
  const needed = sparedFiles + filesPerThread * cores;
  if (limit - open < needed) {
    throw new JobError("DISK", `${act}: ${open} of at most ${limit} files are open, and ${needed} more must be free`, {
      hint: openFilesHint,
    });
  }
}

/** Returns how many files to open at once, of at most `most`, so that most of the limit stays free. */
export function filesAtOnce(most: number, { limit, open } = openFiles()): number {
  return Math.max(1, Math.min(most, Math.floor((limit - open) / 4)));
}
