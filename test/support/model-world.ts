import { mkdir, readdir, readFile, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type AttemptOptions, openJob } from "#src/job/job-context.js";
import type { Decoder } from "#src/formats/format.js";
import type { Engine } from "#src/models/engine.js";
import { splitRunId } from "#src/run/plan/identity.js";
import type { RunId } from "#src/run/plan/plan.js";
import type { RunReport } from "#src/report/report.js";
import { runJob } from "#src/run/run.js";
import { identity } from "./faulty.js";
import { type LossyDisk, lossyDisk } from "./lossy-disk.js";
import { writeModel } from "./onnx.js";
import { partNames } from "./output.js";
import { readFiles, writeRows } from "./parquet.js";
import { openDiskSink } from "./sink-options.js";

/** A job over tiny shards whose output lies on a disk that fails. Its input has versions, which its rows show. */
export interface ModelWorld extends AsyncDisposable {
  readonly disk: LossyDisk;
  readonly version: number;
  /** Writes all shards again, with other values. */
  change(): Promise<void>;
  /** One process; what it reported or threw. */
  attempt(options: AttemptOptions): Promise<RunReport>;
  /** Looks for plans that were not there before: they are of the version that is there now. */
  notePlans(): Promise<void>;
  /** Lists what is wrong in the folder. */
  faults(): Promise<string[]>;
  /** The run that `_SUCCESS` names. */
  success(): Promise<{ number: number; version: number | undefined } | undefined>;
  /** The highest run that has a plan. */
  latest(): Promise<number>;
}

export interface ModelPlan {
  /** Of each shard. */
  readonly rows: readonly number[];
  readonly commitRows: number;
}

let engine: Promise<Engine> | undefined;
let writers = 0;

/** The engine is one for all worlds: its thread costs more than a run. */
export async function closeEngine(): Promise<void> {
  await (await engine)?.[Symbol.asyncDispose]();
  engine = undefined;
}

export async function modelWorld(folder: string, { rows, commitRows }: ModelPlan): Promise<ModelWorld> {
  const root = join(folder, "disk");
  const out = join(root, "out");
  await mkdir(join(folder, "in"));
  await mkdir(root);
  await writeModel(join(folder, "model.onnx"), identity);
  const spec = join(folder, "job.yaml");
  await writeFile(
    spec,
    JSON.stringify({
      version: 1,
      name: "model",
      input: { path: "in/*.parquet" },
      model: { path: "model.onnx" },
      engine: { threads: 1, batch_size: 3 },
      output: { columns: ["id"], parquet: { path: "disk/out" } },
      commit_rows: commitRows,
    }),
  );
  const disk = lossyDisk(root);
  const total = rows.reduce((sum, count) => sum + count, 0);
  const versions = new Map<string, number>();
  let decoder: Promise<Decoder> | undefined;
  let version = 0;

  const writeShards = async (): Promise<void> => {
    let start = 0;
    for (const [index, count] of rows.entries()) {
      const path = join(folder, "in", `${index}.parquet`);
      const select = `SELECT i AS id, (i + ${version * 1000})::FLOAT AS x FROM range(${start}, ${start + count}) t(i)`;
      await writeRows(path, select);
      const time = new Date(Date.UTC(2026, 0, 1 + version));
      await utimes(path, time, time);
      start += count;
    }
  };
  const rowsOf = (of: number, from: number, to: number): string[] =>
    Array.from({ length: Math.min(to, total) - from }, (_, index) => `${from + index} ${from + index + of * 1000}`);
  const plansNow = async (): Promise<{ run: RunId; text: string }[]> => {
    const names = (await readdir(join(out, "_infer-batch")).catch(() => [])) as RunId[];
    const plans: { run: RunId; text: string }[] = [];
    for (const run of names) {
      const text = await readFile(join(out, "_infer-batch", run, "plan.json"), "utf8").catch(() => undefined);
      if (text !== undefined) {
        plans.push({ run, text });
      }
    }
    return plans;
  };
  const versionOf = async (run: RunId): Promise<number | undefined> => {
    const plan = (await plansNow()).find((one) => one.run === run);
    return plan === undefined ? undefined : versions.get(plan.text);
  };
  const successRun = async (): Promise<RunId | undefined> => {
    const text = await readFile(join(out, "_SUCCESS"), "utf8").catch(() => undefined);
    return text === undefined ? undefined : (JSON.parse(text) as { run_id: RunId }).run_id;
  };
  await writeShards();
  return {
    disk,
    get version() {
      return version;
    },
    async change() {
      version += 1;
      await writeShards();
    },
    async attempt(options) {
      await using job = await openJob(spec, { param: [] }, { attempt: options });
      writers += 1;
      const writer = `host.${writers}.w${writers}`;
      const isDead = (other: string): boolean => other !== writer && !alive.has(other);
      const { fs } = disk;
      await using sink = openDiskSink({ folder: out, fs, writer, isDead });
      alive.add(writer);
      try {
        return await runJob({
          ...job,
          sink,
          openDecoder: async (folders) => {
            decoder ??= job.openDecoder(folders);
            return { ...(await decoder), [Symbol.asyncDispose]: () => Promise.resolve() };
          },
          openEngine: async (model, need) => {
            engine ??= job.openEngine(model, need);
            return { ...(await engine), [Symbol.asyncDispose]: () => Promise.resolve() };
          },
        });
      } finally {
        alive.delete(writer);
      }
    },
    async notePlans() {
      for (const { text } of await plansNow()) {
        versions.set(text, versions.get(text) ?? version);
      }
    },
    async faults() {
      const faults: string[] = [];
      const run = await successRun();
      const parts = await partNames(out);
      const seen: string[] = [];
      for (const name of parts) {
        const [, span = "", of = ""] = /^part-(\d+)\.(.+)\.parquet$/.exec(name) ?? [];
        const from = Number(span) * commitRows;
        const expected = rowsOf((await versionOf(of as RunId)) ?? Number.NaN, from, from + commitRows).join();
        const found = await readFiles([join(out, name)]).catch((error: unknown) => String(error));
        const text =
          typeof found === "string" ? found : found.map((row) => `${String(row["id"])} ${String(row["score"])}`).join();
        seen.push(text);
        if (text !== expected || (run !== undefined && of !== run)) {
          faults.push(`${name} beside _SUCCESS of ${run}: ${text}, expected ${expected}`);
        }
      }
      if (run !== undefined) {
        const expected = rowsOf((await versionOf(run)) ?? Number.NaN, 0, total).join();
        faults.push(
          ...(seen.join() === expected ? [] : [`_SUCCESS of ${run}: rows ${seen.join()}, expected ${expected}`]),
        );
      }
      return faults;
    },
    async success() {
      const run = await successRun();
      return run === undefined ? undefined : { number: splitRunId(run).number, version: await versionOf(run) };
    },
    async latest() {
      return Math.max(0, ...(await plansNow()).map(({ run }) => splitRunId(run).number));
    },
    async [Symbol.asyncDispose]() {
      await (await decoder)?.[Symbol.asyncDispose]();
    },
  };
}

/** Writers of attempts under way. */
const alive = new Set<string>();
