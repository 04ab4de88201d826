import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { RunReport } from "#src/report/report.js";
import { writeArrow } from "../support/arrow.js";
import { smallJob } from "../support/faulty.js";
import { scratchFolder, type SpecOverrides } from "../support/job.js";
import type { SmallModel } from "../support/onnx.js";
import { writeModel } from "../support/onnx.js";
import { outputRows, without } from "../support/output.js";
import { type Row, writeRows } from "../support/parquet.js";
import { randomOf } from "../support/random.js";
import { rejectLines } from "../support/rejects.js";
import { scoreHere, workerOf } from "../support/score.js";
import { torture } from "../support/torture.js";

/** Numbers, texts and lists go through as they are, so that a wrong prediction shows; NaN is a prediction of its own. */
function echo(op: "Identity" | "Neg"): SmallModel {
  return {
    inputs: [
      { name: "x", dtype: "float32", shape: ["N", 2] },
      { name: "y", dtype: "float32", shape: ["N", 1] },
      { name: "t", dtype: "string", shape: ["N", 1] },
    ],
    outputs: [
      { name: "pair", dtype: "float32", shape: ["N", 2] },
      { name: "gone", dtype: "bool", shape: ["N", 1] },
      { name: "label", dtype: "string", shape: ["N", 1] },
    ],
    nodes: [
      { op, from: ["x"], to: "pair" },
      { op: "IsNaN", from: ["y"], to: "gone" },
      { op: "Identity", from: ["t"], to: "label" },
    ],
  };
}

interface TableRow {
  readonly key: number | null;
  /** SQL of the two numbers of `x`; NULL makes the row a bad one. */
  readonly x: readonly [string, string];
  readonly y: string;
  readonly t: string;
}

interface Night {
  readonly ds: string;
  readonly rows: readonly TableRow[];
  readonly keyType: "BIGINT" | "INTEGER" | "VARCHAR";
  readonly model: "Identity" | "Neg";
  readonly settings: SpecOverrides;
  readonly format: "parquet" | "arrow";
  readonly workers: 1 | 2;
  readonly target: string;
  /** A new run of the night before it. */
  readonly isAgain: boolean;
  /** Rows from here on are filtered out. */
  readonly limit: number;
  /** Whether all stored rows fit in memory. */
  readonly fits: boolean;
}

type Random = () => number;

function pick<T>(random: Random, from: readonly T[]): T {
  return from[Math.floor(random() * from.length)] as T;
}

const numbers = ["'0'", "'-0'", "'1.5'", "'-2.25'", "'1e30'", "'3'"];
const texts = ["'a'", "''", "'ä, \"b\"'", "'a much longer text than twelve bytes'"];

function randomRow(random: Random, key: number): TableRow {
  const isBad = random() < 0.02;
  return {
    key: random() < 0.03 ? null : key,
    x: [isBad ? "NULL" : pick(random, numbers), pick(random, numbers)],
    y: pick(random, ["NULL", "'1'", "'nan'"]),
    t: pick(random, texts),
  };
}

/** The table of the next night: rows change, go, come, come twice and move. */
function changed(random: Random, rows: readonly TableRow[]): TableRow[] {
  const kept = rows.flatMap((row): TableRow[] => {
    const what = random();
    if (what < 0.05) {
      return [];
    }
    if (what < 0.15) {
      return [{ ...randomRow(random, row.key ?? 0), key: row.key }];
    }
    return what < 0.18 ? [row, pick(random, [row, { ...row, t: "'other'" }])] : [row];
  });
  const added = Array.from({ length: 10 }, (_, index) =>
    randomRow(random, 10_000 + Math.floor(random() * 500) * 10 + index),
  );
  const all = [...kept.slice(0, 40), ...added, ...kept.slice(40)];
  return random() < 0.3 ? all.toSorted((one, other) => one.t.localeCompare(other.t)) : all;
}

function nightsOf(seed: number): Night[] {
  const random = randomOf(seed);
  let rows = Array.from({ length: 150 }, (_, key) => randomRow(random, key));
  let [keyType, model, target]: [Night["keyType"], Night["model"], string] = ["BIGINT", "Identity", "out"];
  let day = 0;
  return Array.from({ length: 5 }, (_, index) => {
    const isAgain = index > 0 && random() < 0.3;
    day += isAgain ? 0 : 1;
    rows = index === 0 ? rows : changed(random, rows);
    keyType = index > 0 && random() < 0.15 ? pick(random, ["BIGINT", "INTEGER", "VARCHAR"]) : keyType;
    model = index > 0 && random() < 0.15 ? pick(random, ["Identity", "Neg"]) : model;
    target = index > 0 && !isAgain && random() < 0.1 ? `${target}x` : target;
    const settings = {
      commit_rows: pick(random, [7, 50, 64, 1000]),
      engine: { threads: 1, batch_size: pick(random, [1, 16, 33, "auto"]) },
      ...(random() < 0.3 ? { checks: { on_fail: "warn" } } : {}),
    };
    return {
      ds: `2026-01-0${day}`,
      isAgain,
      rows,
      keyType,
      model,
      target,
      settings,
      format: pick(random, ["parquet", "parquet", "arrow"]),
      workers: isAgain ? 1 : pick(random, [1, 1, 2]),
      limit: random() < 0.3 ? 100 : Number.POSITIVE_INFINITY,
      fits: random() < 0.6,
    };
  });
}

function sqlOf({ rows, keyType }: Night): string {
  const values = rows.map(
    ({ key, x, y, t }, at) => `(${at}, ${key === null ? "NULL" : `'${key}'`}, ${x[0]}, ${x[1]}, ${y}, ${t})`,
  );
  return `SELECT n::INTEGER AS n, key::${keyType} AS key, x0::FLOAT AS x0, x1::FLOAT AS x1, y::FLOAT AS y, t FROM (VALUES ${values.join(", ")}) AS v(n, key, x0, x1, y, t)`;
}

function published({ rows, limit }: Night): TableRow[] {
  return rows.filter(({ x }, at) => at < limit && x[0] !== "NULL");
}

/** What a row's prediction depends on. NULL and NaN are the same to the model. */
function featuresOf({ x, y, t }: TableRow): string {
  return JSON.stringify([x, y === "NULL" ? "'nan'" : y, t]);
}

/** How many rows take the prediction of the night before, if every row does that may. */
function reusable(night: Night, before: Night | undefined): number {
  if (
    before === undefined ||
    before.keyType !== night.keyType ||
    before.model !== night.model ||
    before.target !== night.target
  ) {
    return 0;
  }
  const stored = new Map<number, string | undefined>();
  for (const row of published(before)) {
    if (row.key !== null) {
      stored.set(row.key, stored.has(row.key) ? undefined : featuresOf(row));
    }
  }
  return published(night).filter((row) => row.key !== null && stored.get(row.key) === featuresOf(row)).length;
}

interface Ran {
  readonly rows: Row[];
  readonly rejects: unknown[];
  readonly reused: number;
}

async function carryOut(
  folder: string,
  night: Night,
  { rewrite, spec, reuse }: { rewrite: (spec: SpecOverrides) => Promise<void>; spec: string; reuse: boolean },
): Promise<Ran> {
  const target = reuse ? night.target : "all";
  await rewrite({
    ...night.settings,
    params: { ds: { type: "date", default: night.ds } },
    input: {
      path: `in/\${ds}.${night.format}`,
      ...(night.limit === Number.POSITIVE_INFINITY ? {} : { where: `n < ${night.limit}` }),
    },
    model: {
      missing: "nan",
      inputs: { x: ["x0", "x1"], y: ["y"], t: ["t"] },
      outputs: { score: "pair[1]", pair: "pair", gone: "gone", label: "label" },
    },
    on_bad_row: "reject",
    max_rejects: "50%",
    ...(reuse ? { reuse: { key: ["key"] } } : {}),
    output: { columns: ["n", "key"], parquet: { path: `${target}/dt=\${ds}` } },
  });
  const reports: RunReport[] = [];
  for (let index = 0; index < night.workers; index += 1) {
    const attempt = { ...workerOf(index, night.workers), newRun: night.isAgain, reuse };
    reports.push(await scoreHere(spec, attempt, night.fits ? {} : { storedBytes: 4000 }));
  }
  const out = join(folder, `${target}/dt=${night.ds}`);
  return {
    rows: (await outputRows(out)).toSorted((one, other) => Number(one["n"]) - Number(other["n"])),
    rejects: await rejectLines(out),
    reused: reports.reduce((sum, { rowsReused }) => sum + rowsReused, 0),
  };
}

async function checkSeed(seed: number): Promise<void> {
  await using scratch = await scratchFolder();
  const job = await smallJob(scratch.path, { model: echo("Identity"), select: "SELECT 1" });
  await rm(join(scratch.path, "in/a.parquet"));
  let before: Night | undefined;
  for (const night of nightsOf(seed)) {
    await writeModel(join(scratch.path, "model.onnx"), echo(night.model));
    const path = join(scratch.path, `in/${night.ds}.${night.format}`);
    await (night.format === "parquet"
      ? writeRows(path, sqlOf(night), "DICTIONARY_SIZE_LIMIT 0")
      : writeArrow(path, sqlOf(night), { kind: "file", batchRows: 37 }));

    const all = await carryOut(scratch.path, night, { ...job, reuse: false });
    const some = await carryOut(scratch.path, night, { ...job, reuse: true });

    const about = `seed ${seed}, ${night.ds}: ${JSON.stringify({ ...night, rows: night.rows.length })}`;
    expect(without("reuse_hash", some.rows), about).toEqual(all.rows);
    expect(some.rejects, about).toEqual(all.rejects);
    if (night.fits) {
      expect(some.reused, about).toBe(reusable(night, before));
    }
    before = some.rows.length > 0 ? night : before;
  }
}

const first = Number(process.env["INFER_BATCH_SEED"] ?? 1);
const count = Number(process.env["INFER_BATCH_CASES"] ?? (torture ? 100 : 1));
const seeds = Array.from({ length: count }, (_, index) => first + index);

test.each(seeds)(
  "nights with reuse publish what they publish without it, and reuse each row that may be: seed %i",
  { timeout: 300_000 },
  async (seed) => {
    await checkSeed(seed);
  },
);
