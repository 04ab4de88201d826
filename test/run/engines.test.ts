import { join } from "node:path";
import { expect, test } from "vitest";
import { openJob } from "#src/job/open.js";
import type { Engine, EngineResponse } from "#src/models/engine.js";
import { runJob } from "#src/run/run.js";
import { type ErrorCode, JobError } from "#src/base/errors.js";
import { expectFinished } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { scratchFolder, writeSpec } from "../support/job.js";
import { partNames } from "../support/output.js";
import { fixtureNamed } from "../support/world.js";

const diabetes = fixtureNamed("diabetes-mlp");

interface Run extends AsyncDisposable {
  readonly outcome: unknown;
  readonly warnings: readonly string[];
  readonly out: string;
}

/** Carries out a run with an engine that only predicts, as every engine can. */
async function runElsewhere(answer: (engine: Engine) => Engine["run"], overrides: object = {}): Promise<Run> {
  const scratch = await scratchFolder();
  const spec = await writeSpec(scratch.path, diabetes, { commit_rows: 80, ...overrides });
  const warnings: string[] = [];
  const log = { info() {}, debug() {}, warn: (message: string) => warnings.push(message) };
  await using job = await openJob(spec, { param: [] }, { log });
  const outcome: unknown = await runJob({
    ...job,
    models: {
      ...job.models,
      batchLimits: { find: () => Promise.resolve(undefined), keep: () => Promise.resolve() },
      async openEngine(model, need) {
        const engine = await job.models.openEngine(model, need);
        const { signature, concurrency } = engine;
        return {
          signature,
          concurrency,
          provider: "elsewhere",
          run: answer(engine),
          [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose](),
        };
      },
    },
  }).catch((error: unknown) => error);
  return {
    outcome,
    warnings,
    out: join(scratch.path, "out"),
    [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
  };
}

/** Takes twenty rows at once. */
const limited =
  (engine: Engine): Engine["run"] =>
  (request): Promise<EngineResponse> =>
    (request.inputs[0]?.dims[0] ?? 0) > 20
      ? Promise.resolve({ kind: "exhausted", message: "the request is too large", inputs: request.inputs })
      : engine.run(request);

test("an engine on another machine scores a run without a device, workers or renewal", async () => {
  await using run = await runElsewhere((engine) => (request) => engine.run(request));

  expect(run.outcome).toMatchObject({ status: "complete", rowsScored: 442, provider: "elsewhere" });
  await expectFinished(run.out, { golden: await goldenRows(diabetes) });
});

test("an engine on another machine gets smaller batches if it refuses large ones", async () => {
  await using run = await runElsewhere(limited, { engine: { batch_size: 64 } });

  expect(run.outcome).toMatchObject({ status: "complete", rowsScored: 442 });
  expect(run.warnings[0]).toMatch(
    /^no memory for a batch of \d+ rows on elsewhere: from now on batches have at most \d+ rows$/,
  );
  await expectFinished(run.out, { golden: await goldenRows(diabetes) });
});

test.each<[string, ErrorCode, number]>([
  ["may answer another attempt", "DEVICE", 75],
  ["will never answer this job", "PERMISSION", 64],
  ["has another model by now", "MODEL_CHANGED", 66],
])(
  "an engine that is not of this machine ends the attempt without setting a row aside where it %s",
  async (_what, code, exitCode) => {
    let calls = 0;
    const failing =
      (engine: Engine): Engine["run"] =>
      (request) => {
        calls += 1;
        return calls > 12 ? Promise.reject(new JobError(code, "scoring elsewhere: no")) : engine.run(request);
      };
    const overrides = { on_bad_row: "reject", max_rejects: "100%", engine: { batch_size: 10 } };
    await using run = await runElsewhere(failing, overrides);

    expect(run.outcome).toMatchObject({ code, exitCode });
    expect(calls).toBeLessThan(30); // rows are not looked for
    expect((await partNames(run.out)).length).toBeLessThan(6);
  },
);
