import { mkdir, readdir, readFile, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import * as fc from "fast-check";
import { afterAll, expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import type { Decoder } from "#src/formats/format.js";
import { type AttemptOptions, openJob } from "#src/job/open.js";
import type { Engine } from "#src/models/engine.js";
import type { RunReport } from "#src/report/report.js";
import { splitRunId } from "#src/run/plan/identity.js";
import type { RunId } from "#src/run/plan/plan.js";
import { runJob } from "#src/run/run.js";
import { identity } from "../support/faulty.js";
import { scratchFolder } from "../support/job.js";
import { type LossyDisk, lossyDisk } from "../support/lossy-disk.js";
import { allLost, anyLuck, commitsSurvive } from "../support/luck.js";
import { writeModel } from "../support/onnx.js";
import { partNames } from "../support/output.js";
import { readFiles, writeRows } from "../support/parquet.js";
import { randomOf } from "../support/random.js";
import { openDiskSink } from "../support/sink-options.js";
import { torture } from "../support/torture.js";

/** A job over tiny shards whose output lies on a disk that fails. Its input has versions, which its rows show. */
interface ModelWorld extends AsyncDisposable {
  readonly disk: LossyDisk;
  readonly version: number;
  /** Writes all shards again, with other values. */
  change(): Promise<void>;
  attempt(options: AttemptOptions): Promise<RunReport>;
  /** Looks for plans that were not there before: they are of the version that is there now. */
  notePlans(): Promise<void>;
  faults(): Promise<string[]>;
  success(): Promise<{ number: number; version: number | undefined } | undefined>;
  /** The highest run that has a plan. */
  latest(): Promise<number>;
}

interface ModelPlan {
  /** Of each shard. */
  readonly rows: readonly number[];
  readonly commitRows: number;
}

let engine: Promise<Engine> | undefined;
let writers = 0;

/** The engine is one for all worlds: its thread costs more than a run. */
async function closeEngine(): Promise<void> {
  await (await engine)?.[Symbol.asyncDispose]();
  engine = undefined;
}

async function modelWorld(folder: string, { rows, commitRows }: ModelPlan): Promise<ModelWorld> {
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
          input: {
            ...job.input,
            openDecoder: async (folders) => {
              decoder ??= job.input.openDecoder(folders);
              return { ...(await decoder), [Symbol.asyncDispose]: () => Promise.resolve() };
            },
          },
          models: {
            ...job.models,
            openEngine: async (model, need) => {
              engine ??= job.models.openEngine(model, need);
              return { ...(await engine), [Symbol.asyncDispose]: () => Promise.resolve() };
            },
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

const runs = torture ? 1000 : 5;

/** What becomes of the machine in the middle of a step. */
interface Blow {
  /** Calls on the file system, from the start of the step. */
  readonly at: number;
  /** Of the processes only, or of the power: then the seed says what survives. */
  readonly power: number | undefined;
}

type Step =
  | { readonly kind: "attempts"; readonly attempts: readonly AttemptOptions[]; readonly blow: Blow | undefined }
  | { readonly kind: "change" };

/** Spans that end anywhere, or where shards do: then whole shards are what is left between committed spans. */
const plans: fc.Arbitrary<ModelPlan> = fc.oneof(
  fc.record({
    rows: fc
      .array(fc.integer({ min: 0, max: 7 }), { minLength: 1, maxLength: 3 })
      .filter((rows) => rows.some((n) => n > 0)),
    commitRows: fc.integer({ min: 1, max: 6 }),
  }),
  fc
    .record({ shards: fc.integer({ min: 3, max: 6 }), commitRows: fc.integer({ min: 1, max: 3 }) })
    .map(({ shards, commitRows }) => ({ rows: Array<number>(shards).fill(commitRows), commitRows })),
);

const alone: AttemptOptions = { worker: { index: 0, count: 1 }, steal: false, newRun: false };

/** Half of them open a new run, where one is finished. */
const workers: fc.Arbitrary<AttemptOptions> = fc.oneof(
  fc.constant({ worker: { index: 0, count: 1 }, steal: false, newRun: true }),
  fc
    .record({ count: fc.integer({ min: 1, max: 3 }), index: fc.nat(), steal: fc.boolean() })
    .map(({ count, index, steal }) => ({ worker: { index: index % count, count }, steal, newRun: false })),
);

const blows = fc.record({
  // A run of few spans makes 100 calls, a new one 140; the last third of these are its swap.
  at: fc.oneof(fc.nat(150), fc.integer({ min: 70, max: 150 })),
  power: fc.option(fc.nat(1000), { nil: undefined }),
});

const steps: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 7,
    arbitrary: fc.record({
      kind: fc.constant("attempts" as const),
      attempts: fc.array(workers, { minLength: 1, maxLength: 2 }),
      blow: fc.option(blows, { nil: undefined, freq: 3 }),
    }),
  },
  { weight: 1, arbitrary: fc.constant({ kind: "change" as const }) },
);

const untouched: Step = { kind: "attempts", attempts: [alone], blow: undefined };

/** Half of the cases begin with a finished run. */
const cases = fc
  .tuple(fc.constantFrom<Step[]>([], [untouched]), fc.array(steps, { minLength: 2, maxLength: 6 }))
  .map((lists) => lists.flat());

/** What was told: the last run that was said to be complete. */
interface Told {
  complete: number;
}

async function take(world: ModelWorld, told: Told, attempts: readonly AttemptOptions[], blow?: Blow): Promise<void> {
  if (blow !== undefined) {
    world.disk.faultAt(blow.at, { kind: "stop" });
  }
  const outcomes = await Promise.allSettled(attempts.map((options) => world.attempt(options)));
  if (blow?.power === undefined) {
    world.disk.kill();
  } else {
    const luck = [allLost, commitsSurvive, anyLuck(randomOf(blow.power))][blow.power % 3] ?? allLost;
    await world.disk.losePower(luck);
  }
  await world.notePlans();
  for (const outcome of outcomes) {
    if (outcome.status === "rejected") {
      expectAllowed(outcome.reason);
    } else if (outcome.value.status !== "partial") {
      told.complete = Math.max(told.complete, Number(/-r(\d+)$/.exec(outcome.value.runId)?.[1] ?? 1));
    }
  }
  await check(world, told);
}

/** A blow, a changed input, or a run that was opened meanwhile: nothing else ends an attempt. */
function expectAllowed(error: unknown): void {
  const isBlow = String((error as Error).cause ?? error).includes("the machine is off");
  const isToldSo = error instanceof JobError && ["INPUT_CHANGED", "PLAN_CHANGED"].includes(error.code);
  expect(isBlow || isToldSo, error instanceof Error ? error.stack : String(error)).toBe(true);
}

async function check(world: ModelWorld, told: Told): Promise<void> {
  expect(await world.faults()).toEqual([]);
  const success = await world.success();
  if (told.complete > 0 && (success?.number ?? 0) < told.complete) {
    // Only a run after it, which takes its place, takes its _SUCCESS away.
    expect(success).toBeUndefined();
    expect(await world.latest()).toBeGreaterThan(told.complete);
  }
}

/** The same command, until it says that all is done: with --new-run where it says that the input has changed. */
async function carryOn(world: ModelWorld, told: Told): Promise<void> {
  let newRun = false;
  // At most: what was under way, as planned; that its input has changed; a new run; that it is complete.
  for (let command = 1; command <= 4; command += 1) {
    const outcome = await world.attempt({ ...alone, newRun }).catch((error: unknown) => error);
    await world.notePlans();
    await check(world, told);
    if (outcome instanceof Error) {
      expect([outcome, newRun]).toMatchObject([{ code: "INPUT_CHANGED" }, false]);
      newRun = true;
    } else if ((outcome as RunReport).status === "already_complete") {
      const success = await world.success();
      expect(success).toEqual({ number: await world.latest(), version: world.version });
      expect(success?.number).toBeGreaterThanOrEqual(told.complete);
      return;
    } else {
      newRun = false;
    }
  }
  throw new Error("the run does not come to its end");
}

afterAll(closeEngine);

test(`each row is there once, after any failures of workers, machine and input (${runs} runs)`, {
  timeout: 3_600_000,
}, async () => {
  const tally = { steps: 0, blows: 0, newRuns: 0 };
  await fc.assert(
    fc.asyncProperty(plans, cases, async (plan, list) => {
      await using scratch = await scratchFolder();
      await using world = await modelWorld(scratch.path, plan);
      const told: Told = { complete: 0 };
      for (const step of list) {
        tally.steps += 1;
        if (step.kind === "change") {
          await world.change();
        } else {
          tally.blows += step.blow === undefined ? 0 : 1;
          await take(world, told, step.attempts, step.blow);
        }
      }
      await carryOn(world, told);
      tally.newRuns += (await world.latest()) > 1 ? 1 : 0;
    }),
    // Each try of a smaller case is a run of its own: the seed and path that are printed do that by hand.
    { numRuns: runs, endOnFailure: true },
  );
  console.info(`${tally.steps} steps, ${tally.blows} blows, ${tally.newRuns} with new runs`);
  expect(tally.newRuns).toBeGreaterThan(0);
});
