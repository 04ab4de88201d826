import { duckDbWhenNeeded } from "#src/duckdb/instance.js";

/** One for all sinks of a process: opening it takes longer than most of what they do with it. */
export const sharedDuckDb = {
  ...duckDbWhenNeeded({ threads: 1, allowed: { folders: ["/"] } }),
  [Symbol.asyncDispose]: () => Promise.resolve(),
};

/** What tests of the Parquet sink do not care about. */
export const sinkOptions = {
  target: "out",
  uri: "out",
  compression: "uncompressed",
  duckdb: sharedDuckDb,
  siblings: [],
  warn: () => {},
} as const;
