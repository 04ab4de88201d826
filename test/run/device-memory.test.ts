import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import { openBatchLimit } from "#src/flow/batch-size.js";
import type { FeatureBatch } from "#src/flow/pack/packer.js";
import { scoreBatch } from "#src/flow/score.js";
import { type AttemptOptions, openJob } from "#src/job/open.js";
import { openBatchLimitCache } from "#src/job/model-tools.js";
import type { Engine } from "#src/models/engine.js";
import type { RunReport } from "#src/report/report.js";
import { runJob } from "#src/run/run.js";
import { emptyContract } from "../support/batches.js";
import { expectFinished } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { scratchFolder, type SpecOverrides, writeSpec } from "../support/job.js";
import { partNames } from "../support/output.js";
import { fixtureNamed } from "../support/world.js";

/** What a device does on purpose. */
interface Tightness {
  /** Rows that fit into its memory; asked with each batch. */
  readonly fits: () => number;
  /** The device fails for good; asked with each batch. */
  readonly broken?: () => boolean;
}

interface TightEngine extends Engine {
  /** Rows of each batch that was tried, in order. */
  readonly tried: readonly number[];
  readonly renewals: number;
}

/**
 * An engine that computes as the real one does, and has a device with little memory: a batch that does not fit takes
 * all of it, so that nothing fits until the engine is renewed, as with ONNX Runtime's arena.
 */
function tightEngine(engine: Engine, { fits, broken = () => false }: Tightness): TightEngine {
  const { local } = engine;
  if (local === undefined) {
    throw new Error("an engine without a device");
  }
  const tried: number[] = [];
  let renewals = 0;
  let takenIn = -1; // which renewal
  let renewing = Promise.resolve();
  return {
    ...engine,
    provider: "cuda",
    local: {
      ...local,
      device: "cuda:0",
      async renew() {
        renewals += 1;
        renewing = local.renew();
        await renewing;
      },
    },
    tried,
    get renewals() {
      return renewals;
    },
    async run(request) {
      await renewing;
      const rows = request.inputs[0]?.dims[0] ?? 0;
      if (broken()) {
        throw new JobError("DEVICE", "scoring on cuda:0: CUDA failure 700: an illegal memory access was encountered");
      }
      tried.push(rows);
      takenIn = rows > fits() ? renewals : takenIn;
      if (takenIn === renewals) {
        const size = rows * 4096;
        const message = `BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size ${size}`;
        return { kind: "exhausted", message, inputs: request.inputs };
      }
      return await engine.run(request);
    },
  };
}

interface TightRun {
  readonly report: RunReport | undefined;
  readonly error: unknown;
  readonly engine: TightEngine;
  readonly warnings: readonly string[];
}

/** Carries out a run on such a device. `batchLimits`: the folder of the batch limit cache. */
async function runTight(
  spec: string,
  { batchLimits, attempt, ...tightness }: Tightness & { batchLimits: string; attempt?: Partial<AttemptOptions> },
): Promise<TightRun> {
  const warnings: string[] = [];
  const log = { info() {}, debug() {}, warn: (message: string) => warnings.push(message) };
  const alone: AttemptOptions = { worker: { index: 0, count: 1 }, steal: false, newRun: false };
  await using job = await openJob(spec, { param: [] }, { log, attempt: { ...alone, ...attempt } });
  let opened: TightEngine | undefined;
  const done = await runJob({
    ...job,
    models: {
      ...job.models,
      batchLimits: openBatchLimitCache(log, batchLimits),
      openEngine: async (model, need) => {
        opened = tightEngine(await job.models.openEngine(model, need), tightness);
        return opened;
      },
    },
  }).then(
    (report) => ({ report, error: undefined }),
    (error: unknown) => ({ report: undefined, error }),
  );
  if (opened === undefined) {
    throw done.error ?? new Error("the run needed no engine");
  }
  return { ...done, engine: opened, warnings };
}

// No GPU is needed: the engine is the real one on CPUs, behind a device that runs out of memory on purpose.

interface TightJob extends AsyncDisposable {
  readonly spec: string;
  readonly out: string;
  readonly batchLimits: string;
  expectFinished(): Promise<void>;
}

/** 442 rows in spans of 80. */
async function tightJob(overrides: SpecOverrides = {}, name = "diabetes-mlp"): Promise<TightJob> {
  const folder = await scratchFolder();
  const fixture = fixtureNamed(name);
  const spec = await writeSpec(folder.path, fixture, { commit_rows: 80, engine: { batch_size: 64 }, ...overrides });
  const out = join(folder.path, "out");
  return {
    spec,
    out,
    batchLimits: join(folder.path, "batch-limits"),
    expectFinished: async () => {
      await expectFinished(out, { golden: await goldenRows(fixture) });
    },
    [Symbol.asyncDispose]: () => folder[Symbol.asyncDispose](),
  };
}

const codeOf = (error: unknown): string => (error instanceof JobError ? `${error.exitCode} ${error.code}` : "");

describe("a device without memory for a batch", () => {
  test("a batch that does not fit on a device is halved, with the engine renewed, until it fits; the rows are the same", async () => {
    await using job = await tightJob();
    const { report, engine, warnings } = await runTight(job.spec, { ...job, fits: () => 10 });

    expect(report).toMatchObject({ status: "complete", rowsScored: 442, batchSize: 8 });
    await job.expectFinished();
    // 64, 32, 16; or 64 and 16, when the last 16 rows of a span come first.
    expect(engine.renewals).toBe(warnings.length);
    expect([2, 3]).toContain(warnings.length);
    expect(warnings[0]).toBe(
      "no memory for a batch of 64 rows on cuda:0: the model is loaded again, from now on batches have at most 32 rows",
    );
  });

  test("after a device had no memory for a batch, the next run begins with the size that fits", async () => {
    await using job = await tightJob();
    await runTight(job.spec, { ...job, fits: () => 10 });

    const next = await runTight(job.spec, { ...job, fits: () => 10, attempt: { newRun: true } });

    expect(next.report).toMatchObject({ status: "complete", rowsScored: 442, batchSize: 8 });
    expect([next.engine.renewals, Math.max(...next.engine.tried), next.warnings]).toEqual([0, 8, []]);
    await job.expectFinished();
  });

  test("after a device had no memory for a batch, another model begins with the size in the spec", async () => {
    await using job = await tightJob();
    await runTight(job.spec, { ...job, fits: () => 10 });
    await using other = await tightJob({}, "external-data");

    const { engine } = await runTight(other.spec, { fits: () => 1000, batchLimits: job.batchLimits });

    expect(Math.max(...engine.tried)).toBe(64);
  });

  test("after a device had no memory for a batch, batch_size: auto stays within the size that fits", async () => {
    await using job = await tightJob({ commit_rows: 442, engine: {} });
    const { report, engine } = await runTight(job.spec, { ...job, fits: () => 20 });

    expect(report).toMatchObject({ status: "complete", rowsScored: 442 });
    expect(report?.batchSize).toBeLessThanOrEqual(20);
    expect(engine.renewals).toBeGreaterThan(0);
    await job.expectFinished();
  });

  test("a device without memory for one row ends the run with 75; committed spans are kept, and a later attempt continues", async () => {
    await using job = await tightJob();
    let rows = 0;
    const stopped = await runTight(job.spec, { ...job, fits: () => ((rows += 1) > 6 ? 0 : 1000) });

    expect(codeOf(stopped.error)).toBe("75 MEMORY");
    expect(String(stopped.error)).toContain("there is no memory for a batch of one row: ");
    const kept = await partNames(job.out);
    expect(kept.length).toBeGreaterThan(0);

    const { report, engine } = await runTight(job.spec, { ...job, fits: () => 1000 });
    expect(report).toMatchObject({ status: "complete", spansResumed: kept.length });
    expect(Math.max(...engine.tried)).toBe(1); // what was found stays
    await job.expectFinished();
  });

  test("a device without memory for a batch ends the run with 75 when the model's batch size is fixed", async () => {
    await using job = await tightJob({}, "diabetes-mlp-batch32");
    const { error, engine } = await runTight(job.spec, { ...job, fits: () => 31 });

    expect(codeOf(error)).toBe("75 MEMORY");
    expect(String(error)).toContain("no memory for a batch of 32 rows, which is the model's own");
    expect(engine.renewals).toBe(0);
  });

  test("a device that fails for another reason ends the run with 75, and no row is rejected for it", async () => {
    await using job = await tightJob({ on_bad_row: "reject", max_rejects: "100%" });
    let calls = 0;
    const { error } = await runTight(job.spec, { ...job, fits: () => 1000, broken: () => (calls += 1) > 8 });

    expect(codeOf(error)).toBe("75 DEVICE");
    const { report } = await runTight(job.spec, { ...job, fits: () => 1000 });
    expect(report).toMatchObject({ status: "complete", rowsRejected: 0 });
    await job.expectFinished();
  });
});

const batchOf = (rowCount: number): FeatureBatch => ({
  rowStart: 100,
  rowCount,
  packedRows: rowCount,
  inputs: [
    {
      name: "x",
      dtype: "float32",
      dims: [rowCount, 1],
      data: Float32Array.from({ length: rowCount }, (_, row) => 100 + row),
    },
  ],
});

test("each row of a batch is scored or reported once, for any memory limit and any rows that the model refuses", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 300 }),
      fc.integer({ min: 1, max: 300 }),
      fc.uniqueArray(fc.integer({ min: 100, max: 399 }), { maxLength: 5 }),
      async (rowCount, fits, refused) => {
        let taken = false;
        const engine: Engine = {
          signature: { inputs: [], outputs: [] },
          provider: "cuda",
          concurrency: 2,
          run({ inputs }) {
            const rows = inputs.flatMap(({ data }) => (data instanceof Float32Array ? [...data] : []));
            taken ||= rows.length > fits;
            const message = taken ? "no memory" : "refused";
            return Promise.resolve(
              taken || rows.some((row) => refused.includes(row))
                ? { kind: taken ? "exhausted" : "failed", message, inputs }
                : { kind: "done", outputs: [], ms: 1, inputs },
            );
          },
          local: {
            device: "cuda:1",
            missing: [],
            operators: undefined,
            sessions: 1,
            opened: () => Promise.resolve(),
            trees: () => ({ kind: "none" }),
            expect: () => Promise.resolve(),
            renew() {
              taken = false;
              return Promise.resolve();
            },
          },
          [Symbol.asyncDispose]: () => Promise.resolve(),
        };
        const log = { info() {}, warn() {}, debug() {} };
        const batchLimits = { find: () => Promise.resolve(undefined), keep: () => Promise.resolve() };
        const batchLimit = await openBatchLimit(batchLimits, log, { engine, contract: emptyContract, modelSha256: "" });
        const seen: number[] = [];
        const told: number[] = [];
        const tools = {
          engine,
          batchLimit,
          tensors: [],
          fixedBatchRows: null,
          onDone: (done: FeatureBatch) => {
            seen.push(...Array.from({ length: done.rowCount }, (_, row) => done.rowStart + row));
          },
          onRow: (row: number) => {
            told.push(row);
          },
        };
        await Promise.all([scoreBatch(tools, batchOf(rowCount)), scoreBatch(tools, { ...batchOf(7), rowStart: 1000 })]);

        const all = Array.from({ length: rowCount }, (_, row) => 100 + row);
        const bad = refused.filter((row) => row < 100 + rowCount).toSorted((one, other) => one - other);
        expect(told.filter((row) => row < 1000).toSorted((one, other) => one - other)).toEqual(bad);
        expect(seen.filter((row) => row < 1000).toSorted((one, other) => one - other)).toEqual(
          all.filter((row) => !bad.includes(row)),
        );
      },
    ),
    { numRuns: 200 },
  );
});
