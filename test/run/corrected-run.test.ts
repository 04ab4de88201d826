import { expect, test } from "vitest";
import { openJob } from "#src/job/open.js";
import { runIdOf } from "#src/run/plan/identity.js";
import { runJob } from "#src/run/run.js";
import type { RunSink, Sink, StoredPlan } from "#src/targets/target.js";
import { JobError } from "#src/base/errors.js";
import { sha256Of } from "#src/base/sha256.js";
import { dailyJob, type DailyJob } from "../support/backfill-job.js";
import { type CliResult, expectEnd, runHere } from "../support/cli.js";
import { scratch, scratchFolder } from "../support/job.js";
import { outputRows } from "../support/output.js";
import { lastJson } from "../support/nights.js";
import { toldAt } from "../support/told.js";

const day = "2026-01-01";
const reject = { on_bad_row: "reject", max_rejects: 5 };

const run = (job: DailyJob, ...args: string[]): Promise<CliResult> =>
  runHere(["run", job.spec, "--param", `ds=${day}`, ...args]);

/** A run that failed at a bad row; `commit_rows` decides whether a span was committed before. */
async function failedRun(folder: string, commitRows: number): Promise<DailyJob> {
  const job = await dailyJob(folder, { commit_rows: commitRows });
  await job.damage(day);
  await expectEnd(run(job), 65);
  return job;
}

test("a run of which nothing is committed is planned anew when its spec is corrected after a failure", async () => {
  const job = await failedRun(scratch.path, 500);
  const columns = { age: "coalesce(age, 0)" };
  await dailyJob(scratch.path, { commit_rows: 500, input: { columns } });
  await job.damage(day);
  await expectEnd(run(job), 0, "planning a new run in place of daily-", "input.columns");
  expect(await outputRows(job.out(day))).toHaveLength(442);
  expect((await run(job)).stdout).toContain("already complete");
});

test("a run of which nothing is committed is planned anew when its input is corrected after a failure", async () => {
  const job = await failedRun(scratch.path, 500);
  await job.arrive(day);
  await expectEnd(run(job), 0);
  expect(lastJson(await runHere(["history", job.spec, "--param", `ds=${day}`, "--json"]))).toMatchObject({
    runs: [{ status: "published" }, { status: "abandoned" }],
  });
});

test("a new run that cannot be planned abandons no run, and the log does not say so", async () => {
  const job = await failedRun(scratch.path, 500);
  await dailyJob(scratch.path, { commit_rows: 500, input: { columns: { age: "no_such_column" } } });
  await job.damage(day);
  const refused = await expectEnd(run(job, "--new-run"), 64, "planning a new run in place of daily-");
  expect(refused.stderr).not.toContain("abandon");
  await dailyJob(scratch.path, { commit_rows: 500 });
  await job.arrive(day);
  expect(lastJson(await runHere(["history", job.spec, "--param", `ds=${day}`, "--json"]))).toMatchObject({
    runs: [{ status: "failed" }],
  });
});

test("a failed run with a committed span, and one of several workers, still ends with 66 when its spec changes", async () => {
  const job = await failedRun(scratch.path, 500);
  await dailyJob(scratch.path, { commit_rows: 500, input: { columns: { age: "coalesce(age, 0)" } } });
  await job.damage(day);
  await expectEnd(run(job, "--worker", "0/2"), 66);

  await using other = await scratchFolder();
  const begun = await dailyJob(other.path, { commit_rows: 20, ...reject, max_rejects: 0 });
  await begun.damage(day);
  await expectEnd(run(begun), 65);
  await dailyJob(other.path, { commit_rows: 20, input: { columns: { age: "coalesce(age, 0)" } } });
  await begun.damage(day);
  await expectEnd(run(begun), 66, "--new-run");
});

test("a failed run still ends with 66 when its spec changes while another attempt works on it", async () => {
  const job = await failedRun(scratch.path, 500);
  const changed = async (): Promise<CliResult> => {
    await dailyJob(scratch.path, { commit_rows: 500, input: { columns: { age: "coalesce(age, 0)" } } });
    await job.damage(day);
    return await run(job);
  };
  await using other = await openJob(job.spec, { param: [`ds=${day}`] });
  const beside: CliResult[] = [];
  const open: Sink["open"] = async (stored) => {
    const opened = await other.sink.open(stored);
    const begin: RunSink["begin"] = async (attempt) => {
      const writer = await opened.begin(attempt);
      beside.push(await changed());
      return writer;
    };
    return Object.create(opened, { begin: { value: begin } }) as RunSink;
  };
  await expect(
    runJob({ ...other, sink: Object.create(other.sink, { open: { value: open } }) as Sink }),
  ).rejects.toThrow();
  expect(beside).toMatchObject([{ code: 66 }]);
});

test("a run that was stopped by a signal before it committed anything still ends with 66 when its spec changes", async () => {
  const job = await failedRun(scratch.path, 500);
  await using stopped = await openJob(job.spec, { param: [`ds=${day}`] });
  const stored = await stopped.sink.find(runIdOf("daily", stopped.job.spec.params, sha256Of));
  await toldAt(stopped.sink, (stored as StoredPlan).plan.runId).failed(new JobError("SIGTERM", "stopped by SIGTERM"));
  await dailyJob(scratch.path, { commit_rows: 500, input: { columns: { age: "coalesce(age, 0)" } } });
  await job.damage(day);
  await expectEnd(run(job), 66);
});
