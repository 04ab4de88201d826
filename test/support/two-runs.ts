import { cp, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "vitest";
import { differences, goldenRows } from "./golden.js";
import { writeSpec } from "./job.js";
import { faultsOfFinished, outputRows, partNames } from "./output.js";
import { type Row, readFiles } from "./parquet.js";
import { scoreHere } from "./score.js";
import { fixtureNamed } from "./world.js";

/** A finished run, and a spec that asks for another column: rows tell whether they are of the new run. */
export interface TwoRuns {
  readonly spec: string;
  readonly out: string;
  readonly old: readonly Row[];
  readonly new: readonly Row[];
}

const fixture = fixtureNamed("diabetes-mlp");

/** Scores the first run in `folder`, or the first `old` ones, and changes its spec. Copies of the folder may be made. */
export async function twoRuns(folder: string, commitRows: number, { old = 1 } = {}): Promise<TwoRuns> {
  const golden = await goldenRows(fixture);
  for (let number = 1; number <= old; number += 1) {
    await scoreHere(await writeSpec(folder, fixture, { commit_rows: commitRows }), { newRun: true });
  }
  const model = { outputs: { again: "score" } };
  const spec = await writeSpec(folder, fixture, { commit_rows: commitRows, model });
  return { spec, out: join(folder, "out"), old: golden, new: golden.map(({ id, score }) => ({ id, again: score })) };
}

/** The same in another folder. */
export async function copyOf(runs: TwoRuns, from: string, to: string): Promise<TwoRuns> {
  await cp(from, to, { recursive: true });
  return { ...runs, spec: join(to, "job.yaml"), out: join(to, "out") };
}

/** What a reader counts: rows of the old run, of the new one, or nothing. */
export type Look = "old" | "new" | "nothing" | { readonly faults: readonly string[] };

/**
 * Reads as readers are told to: `_SUCCESS`, all parts, `_SUCCESS` again. What was read is dropped when that differs.
 */
export async function look({ out, old, new: next }: TwoRuns): Promise<Look> {
  const before = await successIn(out);
  if (before === undefined) {
    return "nothing";
  }
  const names = await partNames(out);
  const rows = await readFiles(names.map((name) => join(out, name))).catch((error: unknown) => String(error));
  if ((await successIn(out)) !== before) {
    return "nothing";
  }
  if (typeof rows === "string") {
    return { faults: [`${before}: ${rows}`] };
  }
  const which = "again" in (rows[0] ?? {}) ? "new" : "old";
  const faults = differences(rows, which === "new" ? next : old);
  return faults.length === 0 ? which : { faults: [`${before}: ${names.join()}`, ...faults] };
}

async function successIn(out: string): Promise<string | undefined> {
  return await readFile(join(out, "_SUCCESS"), "utf8").catch(() => undefined);
}

/** Expects the new rows, and nothing of the run before. */
export async function expectNew({ out, new: next }: TwoRuns): Promise<void> {
  expect(differences(await outputRows(out), next)).toEqual([]);
  expect(await faultsOfFinished(out, next.length)).toEqual([]);
  const names = await readdir(join(out, "_infer-batch"), { recursive: true });
  expect(names.filter((name) => /\/(tmp|parts|withdrawn)\//.test(name))).toEqual([]);
}
