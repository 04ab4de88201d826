import { openDuckDbLazily } from "#src/duckdb/instance.js";

/** One DuckDB for all sinks of a process: opening it takes longer than most of what they do with it. */
export const sharedDuckDb = {
  ...openDuckDbLazily({ threads: 1, allowed: { folders: ["/"] } }),
  [Symbol.asyncDispose]: () => Promise.resolve(),
};

/** A DuckDB for the keys of a run. */
export const openKeyDuckDb = (): Promise<typeof sharedDuckDb> => Promise.resolve(sharedDuckDb);

/** Options that tests of the Parquet sink do not vary. */
export const sinkOptions = {
  target: "out",
  uri: "out",
  compression: "uncompressed",
  duckdb: sharedDuckDb,
  openKeyDuckDb,
  otherRunFolders: [],
  warn: () => {},
} as const;
