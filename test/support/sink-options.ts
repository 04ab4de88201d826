/** What tests of the Parquet sink do not care about. */
export const sinkOptions = {
  target: "out",
  uri: "out",
  compression: "uncompressed",
  threads: 1,
  siblings: [],
  warn: () => {},
} as const;
