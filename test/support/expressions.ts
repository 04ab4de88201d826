import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "vitest";
import { differences } from "./golden.js";
import { faultsOfFinished, outputRows, partNames } from "./output.js";
import { query, type Row } from "./parquet.js";

interface Counts {
  readonly rows: number;
  readonly rejected: number;
  readonly filtered: number;
}

/** Rows, rejects and rows filtered out, as the manifest sums them up. */
async function manifestCounts(out: string): Promise<Counts & { readonly parts: readonly Counts[] }> {
  const text = await readFile(join(out, "_manifest.json"), "utf8");
  const { rows, rows_rejected, rows_filtered, parts } = JSON.parse(text) as {
    rows: number;
    rows_rejected: number;
    rows_filtered: number;
    parts: Counts[];
  };
  return { rows, rejected: rows_rejected, filtered: rows_filtered, parts };
}

/** Just these rows are in the output, and every planned row is counted once: as scored, rejected or filtered out. */
export async function expectKept(
  out: string,
  { rows, planned, rejected = 0 }: { rows: readonly Row[]; planned: number; rejected?: number },
): Promise<void> {
  expect(differences(await outputRows(out), rows)).toEqual([]);
  expect(await faultsOfFinished(out, rows.length)).toEqual([]);
  const { parts, ...all } = await manifestCounts(out);
  expect(all).toEqual({ rows: rows.length, rejected, filtered: planned - rows.length - rejected });
  const sum = (of: (part: Counts) => number): number => parts.reduce((total, part) => total + of(part), 0);
  expect({ rows: sum((p) => p.rows), rejected: sum((p) => p.rejected), filtered: sum((p) => p.filtered) }).toEqual(all);
}

/** The rows of all parts in span order, with every value as text. */
export async function textRows(out: string): Promise<Row[]> {
  const list = (await partNames(out)).map((name) => `'${join(out, name)}'`).join(", ");
  return await query(`SELECT COLUMNS(*)::VARCHAR FROM read_parquet([${list}], hive_partitioning = false)`);
}

/** What a part says of itself in its key-value metadata. */
export async function partLabels(out: string): Promise<Row[]> {
  const names = await partNames(out);
  return await Promise.all(
    names.map(async (name) => {
      const found = await query(`SELECT decode(value) AS label FROM parquet_kv_metadata('${join(out, name)}')`);
      return (
        found.flatMap(({ label }) => (String(label).startsWith("{") ? [JSON.parse(String(label)) as Row] : []))[0] ?? {}
      );
    }),
  );
}
