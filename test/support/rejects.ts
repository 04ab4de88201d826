import { readdir, readFile } from "node:fs/promises";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import type { Spoilt, SpoiltJob } from "./faulty.js";
import { differences, goldenRows } from "./golden.js";
import { faultsOfFinished, outputRows } from "./output.js";
import type { Row } from "./parquet.js";

/** As an attempt may set rows aside, however many. */
export const reject = { on_bad_row: "reject", max_rejects: "100%" };

export const spoil = (row: number, column: string, sql: string, reason: string, shown: string | null): Spoilt => ({
  row,
  column,
  sql,
  reason,
  shown,
});

/** What the reject lines must be: a line a row, in order. */
async function linesOf(job: SpoiltJob, spoilt: readonly Spoilt[]): Promise<Row[]> {
  const golden = await goldenRows(job.fixture);
  return spoilt.map(({ row, column, reason, shown }) => ({
    ...job.locate(row),
    columns: { [job.fixture.key]: String(golden[row]?.[job.fixture.key]) },
    column,
    reason,
    value: shown,
  }));
}

/** Every row is in a part, as predicted, or in a reject line with its reason. */
export async function expectAllThere(job: SpoiltJob, spoilt: readonly Spoilt[]): Promise<void> {
  const golden = await goldenRows(job.fixture);
  const bad = new Set(spoilt.map(({ row }) => row));
  const good = golden.filter((_, row) => !bad.has(row));
  expect(differences(await outputRows(job.out), good)).toEqual([]);
  expect(await rejectLines(job.out)).toEqual(await linesOf(job, spoilt));
  expect(await faultsOfFinished(job.out, good.length)).toEqual([]);
  const { rows_rejected: rejected, parts } = await manifestOf(job.out);
  expect([rejected, parts.reduce((sum, part) => sum + part.rejected, 0)]).toEqual([bad.size, bad.size]);
}

export async function rejectNames(out: string): Promise<string[]> {
  const folder = join(out, "_rejects");
  return existsSync(folder) ? (await readdir(folder)).toSorted() : [];
}

/** What such a name must be: span, run, and something of its digest. */
export function nameOfRejects(span: number, run: string): unknown {
  return expect.stringMatching(new RegExp(`^part-${String(span).padStart(5, "0")}\\.${run}\\.[0-9a-f]{16}\\.jsonl$`));
}

/** The lines of all files under `_rejects/`, in span order. */
export async function rejectLines(out: string): Promise<Row[]> {
  const names = await rejectNames(out);
  const texts = await Promise.all(names.map((name) => readFile(join(out, "_rejects", name), "utf8")));
  return texts.flatMap((text) =>
    text
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line) as Row),
  );
}

interface ManifestCounts {
  readonly rows: number;
  readonly rows_rejected: number;
  readonly parts: readonly { readonly span: number; readonly rows: number; readonly rejected: number }[];
}

async function manifestOf(out: string): Promise<ManifestCounts> {
  return JSON.parse(await readFile(join(out, "_manifest.json"), "utf8")) as ManifestCounts;
}
