import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { RunReport } from "#src/report/report.js";
import type { SpecOverrides } from "./job.js";
import { identity, smallJob } from "./faulty.js";
import { type Row, writeRows } from "./parquet.js";
import { scoreHere } from "./score.js";

/** A job with `reuse` whose model gives each row its feature as `score`; it has a run a night. */
export interface ReuseJob {
  readonly spec: string;
  /** Writes the rows of a night, and the spec for it; default: those of `rowsOf`. */
  prepare(ds: string, overrides?: SpecOverrides & { readonly select?: string }): Promise<void>;
  /** The same, and scores the night in this process. */
  night(ds: string, overrides?: SpecOverrides & { readonly select?: string }): Promise<RunReport>;
}

export const rowCount = 300;

/** Ids from `start` on; each tenth row is another one each night. */
export function rowsOf(ds: string, start = 0): string {
  const day = Number(ds.slice(-2));
  return `SELECT row AS id, (CASE WHEN row % 10 = ${day % 10} THEN row + ${day} / 100 ELSE row END)::FLOAT AS x FROM range(${start}, ${start + rowCount}) t(row)`;
}

/** What the rows of `rowsOf` are scored as. */
export function scoresOf(ds: string, start = 0): Map<number, number> {
  const day = Number(ds.slice(-2));
  return new Map(
    Array.from({ length: rowCount }, (_, index): [number, number] => {
      const id = start + index;
      return [id, Math.fround(id % 10 === day % 10 ? id + day / 100 : id)];
    }),
  );
}

/** The scores of rows by id. @throws Error when an id is there twice */
export function scoresById(rows: readonly Row[]): Map<number, number> {
  const scores = new Map(rows.map(({ id, score }) => [Number(id), Math.fround(Number(score))]));
  if (scores.size !== rows.length) {
    throw new Error(`${rows.length} rows have ${scores.size} ids`);
  }
  return scores;
}

export async function reuseJob(folder: string, base: SpecOverrides = {}): Promise<ReuseJob> {
  const job = await smallJob(folder, { model: identity, select: "SELECT 1" });
  await rm(join(folder, "in/a.parquet"));
  const prepare: ReuseJob["prepare"] = async (ds, { select = rowsOf(ds), ...overrides } = {}) => {
    await writeRows(join(folder, `in/${ds}.parquet`), select);
    await job.rewrite({
      params: { ds: { type: "date", default: ds } },
      commit_rows: 100,
      engine: { threads: 1 },
      reuse: { key: ["id"] },
      ...base,
      ...overrides,
      input: { path: "in/${ds}.parquet" },
      output: { columns: ["id"], parquet: { path: "out/dt=${ds}" }, ...base.output, ...overrides.output },
    });
  };
  return {
    spec: job.spec,
    prepare,
    async night(ds, overrides) {
      await prepare(ds, overrides);
      return await scoreHere(job.spec);
    },
  };
}
