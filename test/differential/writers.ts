import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import type { Dice } from "./dice.js";
import { type OtherWriter, type PyarrowOptions, pyarrowEnding, pyarrowOptions } from "./pyarrow-options.js";
import type { TableColumn, Value } from "./values.js";
import { type ArrowOptions, arrowOptions, writeByArrow } from "./write-arrow.js";
import { duckDbOptions, writeByDuckDb } from "./write-duckdb.js";
import { canParquetJs, type ParquetJsOptions, parquetJsOptions, writeByParquetJs } from "./write-parquetjs.js";

/** By what a shard is written, and how. */
export type Writing = { readonly ending: string } & (
  | { readonly kind: "duckdb"; readonly options: string }
  | { readonly kind: "arrow"; readonly options: ArrowOptions }
  | { readonly kind: "parquetjs"; readonly options: ParquetJsOptions; readonly other: string }
  | { readonly kind: "pyarrow"; readonly options: PyarrowOptions }
);

export interface Writers {
  readonly isPlain: boolean;
  readonly pyarrow: boolean;
  /** Of Python's, besides pyarrow. */
  readonly others?: readonly OtherWriter[];
}

export function writingOf(dice: Dice, { isPlain, pyarrow, others = [] }: Writers): Writing {
  if (isPlain && dice.chance(0.7)) {
    return { kind: "parquetjs", ending: ".parquet", options: parquetJsOptions(dice), other: duckDbOptions(dice) };
  }
  if (pyarrow && dice.chance(0.6)) {
    const options = pyarrowOptions(dice, others);
    return { kind: "pyarrow", ending: pyarrowEnding(options), options };
  }
  if (dice.chance(0.45)) {
    const kind = dice.pick(["file", "stream"] as const);
    return { kind: "arrow", ending: kind === "file" ? ".arrow" : ".arrows", options: arrowOptions(kind, dice) };
  }
  return { kind: "duckdb", ending: ".parquet", options: duckDbOptions(dice) };
}

/** Writes a shard, unless it is one of pyarrow's: those are written together. */
export async function writeShard(
  path: string,
  columns: readonly TableColumn[],
  values: readonly (readonly Value[])[],
  writing: Writing,
): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  switch (writing.kind) {
    case "duckdb":
      await writeByDuckDb(path, columns, values, writing.options);
      return;
    case "arrow":
      await writeByArrow(path, columns, values, writing.options);
      return;
    case "parquetjs":
      await (canParquetJs(columns, values)
        ? writeByParquetJs(path, columns, values, writing.options)
        : writeByDuckDb(path, columns, values, writing.other));
      return;
    case "pyarrow":
      return;
    default:
      throw new TypeError("no such writer");
  }
}
