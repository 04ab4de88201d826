import { readdir } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { checkSeveral, findWorker } from "#src/job/attempt.js";
import { expectEnd, runHere } from "../support/cli.js";
import { refusalOf } from "../support/faulty.js";
import { scratch, writeSpec } from "../support/job.js";
import { runSpec } from "../support/score.js";
import { fixtureNamed } from "../support/world.js";

const found = (option: string | undefined, env: Record<string, string> = {}): Promise<string> =>
  refusalOf(Promise.resolve().then(() => findWorker(option, env)));

describe("which worker a process is", () => {
  test.each([
    { option: "2/4", env: {}, worker: { index: 2, count: 4 } },
    { option: "0/1", env: {}, worker: { index: 0, count: 1 } },
    { option: "007/0100", env: {}, worker: { index: 7, count: 100 } },
    { option: undefined, env: {}, worker: { index: 0, count: 1 } },
    { option: undefined, env: { INFER_BATCH_WORKERS: "3" }, worker: { index: 0, count: 1 } },
    { option: undefined, env: { AWS_BATCH_JOB_ARRAY_SIZE: "3" }, worker: { index: 0, count: 1 } },
    { option: undefined, env: { JOB_COMPLETION_INDEX: "1", INFER_BATCH_WORKERS: "3" }, worker: { index: 1, count: 3 } },
    {
      option: undefined,
      env: { AWS_BATCH_JOB_ARRAY_INDEX: "9", AWS_BATCH_JOB_ARRAY_SIZE: "10" },
      worker: { index: 9, count: 10 },
    },
    // What is said outright wins, over what is wrong too.
    { option: "0/2", env: { JOB_COMPLETION_INDEX: "1", INFER_BATCH_WORKERS: "3" }, worker: { index: 0, count: 2 } },
    { option: "0/1", env: { JOB_COMPLETION_INDEX: "1" }, worker: { index: 0, count: 1 } },
    {
      option: undefined,
      env: {
        JOB_COMPLETION_INDEX: "1",
        INFER_BATCH_WORKERS: "3",
        AWS_BATCH_JOB_ARRAY_INDEX: "0",
        AWS_BATCH_JOB_ARRAY_SIZE: "2",
      },
      worker: { index: 1, count: 3 },
    },
  ])("$option, $env", ({ option, env, worker }) => {
    expect(findWorker(option, env)).toEqual(worker);
  });

  test.each("|1|4/4|5/4|0/0|-1/4|1.5/4|a/b|1/4/8| 1/4|1/4 |1 / 4|0/1000000|٣/٤".split("|"))(
    "--worker '%s' is refused",
    async (option) => {
      expect(await found(option)).toMatch(/^64 USAGE\nreading --worker/);
    },
  );

  test("a wrong --worker is refused with the value and the expected form", async () => {
    expect(await found("4/4")).toMatchInlineSnapshot(`
      "64 USAGE
      reading --worker 4/4: expected i/n with i from 0 to n - 1
      hint: such as --worker 0/4 to --worker 3/4 for four workers"
    `);
    expect(await found(undefined, { JOB_COMPLETION_INDEX: "1" })).toMatchInlineSnapshot(`
      "64 USAGE
      reading JOB_COMPLETION_INDEX: INFER_BATCH_WORKERS is not set
      hint: set INFER_BATCH_WORKERS to the Job's completions, or pass --worker i/n (--worker 0/1 for one worker)"
    `);
    expect(await found(undefined, { JOB_COMPLETION_INDEX: "1", INFER_BATCH_WORKERS: "" })).toMatchInlineSnapshot(`
      "64 USAGE
      reading JOB_COMPLETION_INDEX=1, INFER_BATCH_WORKERS=: expected i/n with i from 0 to n - 1
      hint: such as --worker 0/4 to --worker 3/4 for four workers"
    `);
    expect(await found(undefined, { AWS_BATCH_JOB_ARRAY_INDEX: "3" })).toMatchInlineSnapshot(`
      "64 USAGE
      reading AWS_BATCH_JOB_ARRAY_INDEX=3, AWS_BATCH_JOB_ARRAY_SIZE=: expected i/n with i from 0 to n - 1
      hint: such as --worker 0/4 to --worker 3/4 for four workers"
    `);
  });
});

describe("what several workers cannot do", () => {
  const several = { worker: { index: 1, count: 4 }, newRun: false };
  const refused = (attempt: typeof several, clock: readonly string[]): Promise<string> =>
    refusalOf(
      (async () => {
        checkSeveral(attempt, clock);
      })(),
    );

  test("several workers with a param from the clock or --new-run are refused with the reason", async () => {
    expect(await refused(several, ["params.ds"])).toMatchInlineSnapshot(`
      "64 USAGE
      reading the spec: params.ds comes from the clock, and 4 workers share the run
      hint: give all of them the same: --param ds=…"
    `);
    expect(await refused(several, ["output"])).toMatchInlineSnapshot(`
      "64 USAGE
      reading the spec: output comes from the clock, and 4 workers share the run
      hint: name it under params, and give all of them the same with --param"
    `);
    expect(await refused({ ...several, newRun: true }, [])).toMatchInlineSnapshot(`
      "64 USAGE
      reading --new-run: one of several workers cannot open a new run for the others
      hint: run it with one worker, without --worker"
    `);
  });

  test("one worker may have a param from the clock and --new-run", () => {
    checkSeveral({ worker: { index: 0, count: 1 }, newRun: true }, ["params.ds"]);
    checkSeveral(several, []);
  });
});

const clock = { params: { ds: "${today}" }, output: { columns: ["id"], parquet: { path: "out/dt=${ds}" } } };

test.each([
  { how: "--worker", args: ["--worker", "0/2"], env: {} },
  { how: "Kubernetes", args: [], env: { JOB_COMPLETION_INDEX: "0", INFER_BATCH_WORKERS: "2" } },
  { how: "AWS Batch", args: [], env: { AWS_BATCH_JOB_ARRAY_INDEX: "0", AWS_BATCH_JOB_ARRAY_SIZE: "2" } },
])(
  "several workers of a job with a param from the clock are refused before anything is written ($how)",
  async ({ args, env }) => {
    const spec = await writeSpec(scratch.path, fixtureNamed("wine-forest"), clock);

    const { code, stderr, stdout } = await runHere(["run", spec, ...args], { env });

    expect([code, stdout]).toEqual([64, ""]);
    expect(stderr).toContain("params.ds comes from the clock, and 2 workers share the run");
    expect(stderr).toContain("--param ds=…");
    expect(await readdir(scratch.path)).toEqual(["job.yaml"]);
  },
);

test("several workers run when each is given the same value of the param", async () => {
  const spec = await writeSpec(scratch.path, fixtureNamed("wine-forest"), { ...clock, commit_rows: 100 });
  const args = ["--param", "ds=2026-01-31"];

  const { summary } = await expectEnd(runSpec(spec, { args: [...args, "--worker", "1/2"] }), 0);
  expect(summary).toMatchObject({ status: "partial", rows_planned: 178, rows_scored: 78 });
  // Only `run` looks at what Kubernetes says.
  const env = { JOB_COMPLETION_INDEX: "0" };
  const status = await runHere(["status", spec, ...args, "--json"], { env });
  expect([status.code, JSON.parse(status.stdout)]).toMatchObject([0, { spans_committed: 1 }]);
  expect((await runHere(["run", spec, ...args], { env })).stderr).toContain("INFER_BATCH_WORKERS is not set");
});
