import type { Dice } from "./dice.js";

/** Arguments of Python's writers; see peer.py. */
export type PyarrowOptions = Readonly<Record<string, string | number | boolean>> & {
  readonly kind: "parquet" | "file" | "stream" | "polars" | "fastparquet" | "spark";
};

export type OtherWriter = "polars" | "fastparquet" | "spark";

/** @param others more writers, which not every Python has */
export function pyarrowOptions(dice: Dice, others: readonly OtherWriter[]): PyarrowOptions {
  const kind = dice.pick(["parquet", "parquet", "file", "stream", ...others] as const);
  const statistics = dice.chance(0.7);
  if (kind === "polars") {
    return {
      kind,
      compression: dice.pick(["zstd", "snappy", "gzip", "uncompressed", "lz4"]),
      statistics,
      row_group_size: dice.pick([10, 500]),
      data_page_size: dice.pick([64, 1_048_576]),
    };
  }
  if (kind === "fastparquet") {
    const compression = dice.pick(["UNCOMPRESSED", "GZIP", "SNAPPY", "ZSTD"]);
    return { kind, compression, stats: statistics, row_group_offsets: dice.pick([10, 500]) };
  }
  if (kind === "spark") {
    return { kind, row_group_size: dice.pick([10, 500]) };
  }
  if (kind !== "parquet") {
    return {
      kind,
      batch_rows: dice.pick([7, 500, 8192]),
      compression: dice.pick(["", "lz4", "zstd"]),
      dictionaries: dice.chance(0.3),
    };
  }
  return {
    kind,
    row_group_size: dice.pick([10, 500, 1_000_000]),
    data_page_size: dice.pick([64, 4096, 1_048_576]),
    data_page_version: dice.pick(["1.0", "2.0"]),
    compression: dice.pick(["none", "snappy", "gzip", "zstd", "lz4", "brotli"]),
    // Of a column whose values float16 holds.
    halves: dice.chance(0.3),
    use_dictionary: dice.chance(0.6),
    write_statistics: statistics,
    write_page_index: dice.chance(0.3),
    write_page_checksum: dice.chance(0.3),
    // Version 1.0 has no UINT_32: pyarrow makes int64 of it, which is another type.
    version: dice.pick(["2.4", "2.6"]),
    store_decimal_as_integer: dice.chance(0.3),
  };
}

export function pyarrowEnding({ kind }: PyarrowOptions): string {
  return kind === "file" ? ".arrow" : kind === "stream" ? ".arrows" : ".parquet";
}
