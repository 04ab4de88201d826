import { expect, test } from "vitest";
import type { Finding } from "#src/checks/check.js";
import { createAttemptRecord } from "#src/report/attempt-record.js";
import { decidedMetrics, metricsText, parsePreviousMetrics } from "#src/report/metrics.js";
import type { Outcome } from "#src/report/report.js";
import { reviewedRun } from "../support/reviews.js";

const { record, outcome, review } = reviewedRun(3);
const text = metricsText({ record, outcome, lastSuccessMs: undefined, endedMs: 0 });
const labels = 'batch_job="daily",worker="1"';

/** The metrics with what each check of a run has measured. */
function checkValues(results: readonly Finding[]): string[] {
  const run = reviewedRun(3);
  const stored = run.review.verdict ?? expect.fail();
  run.record.setReview({ ...run.review, verdict: { ...stored, verdict: { ...stored.verdict, results } } });
  const lines = metricsText({ record: run.record, outcome, lastSuccessMs: undefined, endedMs: 0 }).split("\n");
  return lines.filter((line) => line.startsWith("infer_batch_check_value{"));
}

const result = (column: string, level: Finding["level"], measured: number): Finding => ({
  check: "class",
  column,
  level,
  measured,
  limit: 1,
  against: null,
  numbers: {},
});

test("the metrics of a held run have a value, a limit and a result for each check and column", () => {
  const psi = review.verdict?.verdict.results.find(({ check, column }) => check === "shape" && column === "score");
  expect(psi?.level).toBe("hold");
  for (const [name, value] of [
    ["value", psi?.measured],
    ["limit", psi?.limit],
    ["result", 2],
  ] as const) {
    expect(text).toContain(
      `\ninfer_batch_check_${name}{${labels},check="shape",column="score",role="output"} ${value}\n`,
    );
  }
  expect(text).toContain(`\ninfer_batch_check_result{${labels},check="rows",column="",role="run"} 0\n`);
  expect(text).toContain(`\ninfer_batch_run_state{${labels},state="held"} 1\n`);
});

test("the metrics of a check whose value is a text have its result only", () => {
  expect(text).toContain(`infer_batch_check_result{${labels},check="column",column="score",role="output"} 0\n`);
  expect(text).not.toContain(`infer_batch_check_value{${labels},check="column"`);
});

test("several results of one check and column become one sample, the worst, and the number of samples is bounded", () => {
  const many = Array.from({ length: 1000 }, (_, index) => result(`c${index}`, "pass", index));
  const results = [...many, result("c7", "warn", 0.5), result("c7", "pass", 3), result("last", "hold", 0.1)];
  const samples = checkValues(results);
  expect(samples).toHaveLength(300);
  expect(samples.slice(0, 2)).toEqual([
    `infer_batch_check_value{${labels},check="class",column="last",role="output"} 0.1`,
    `infer_batch_check_value{${labels},check="class",column="c7",role="output"} 0.5`,
  ]);
});

test("an output and a feature of the same name have samples of their own", () => {
  const results = [result("radius", "hold", 6.13), { ...result("radius", "pass", 0.002), isFeature: true as const }];
  expect(checkValues(results)).toEqual([
    `infer_batch_check_value{${labels},check="class",column="radius",role="output"} 6.13`,
    `infer_batch_check_value{${labels},check="class",column="radius",role="feature"} 0.002`,
  ]);
});

test("an attempt that finds a run held repeats the metrics of the attempt that scored it", () => {
  const info = record.info;
  const idle = createAttemptRecord({ info, nowMs: () => 0, dateMs: () => 0 });
  idle.setRun(record.run ?? expect.fail());
  idle.setReview(review);
  const { report } = outcome.kind === "done" ? outcome : expect.fail();
  const decided = { ...(report.decided ?? expect.fail()), isOwnVerdict: false };
  const again: Outcome = { kind: "done", report: { ...report, rowsScored: 0, decided } };
  const state = { record: idle, outcome: again, lastSuccessMs: undefined, endedMs: 0 };
  const scored = `infer_batch_rows_scored{${labels}} 3\n`;
  expect(metricsText(state, parsePreviousMetrics(text, info))).toContain(scored);
  // The attempt that scored was killed before it had a verdict.
  const killed = text.replaceAll(/^.*infer_batch_check_.*\n/gm, "");
  expect(metricsText(state, parsePreviousMetrics(killed, info))).toContain("infer_batch_check_result{");
});

/** The metrics after a person approved the run. */
function approved(earlier: string, atMs: number): string | undefined {
  return decidedMetrics(earlier, { runId: "daily-0123456789ab", state: "published", atMs });
}

/** The metrics before the exit code. */
function head(metrics: string): string {
  return metrics.slice(0, metrics.indexOf("# HELP infer_batch_exit_code"));
}

test("the metrics of a held run change to published after a person approves it", () => {
  const decided = approved(text, 1_795_000_000_500) ?? "";
  expect(decided).toContain(`infer_batch_run_state{${labels},state="held"} 0\n`);
  expect(decided).toContain(`infer_batch_run_state{${labels},state="published"} 1\n`);
  expect(text).toContain(`infer_batch_exit_code{${labels}} 67\n`);
  expect(decided).toContain(`infer_batch_exit_code{${labels}} 0\n`);
  expect(text).not.toContain("last_success");
  const same = metricsText({ record, outcome, lastSuccessMs: 1_795_000_000_500, endedMs: 0 });
  expect(head(decided)).toBe(head(same));
  expect(head(approved(same, 1_795_000_009_000) ?? "")).toContain(
    '_seconds{batch_job="daily",worker="1"} 1795000009\n',
  );
  expect(head(approved(same, 0) ?? ""), "a later success").toBe(head(same));
});

test("the metrics of a held run that a person discards keep their exit code", () => {
  const decided = decidedMetrics(text, { runId: "daily-0123456789ab", state: "discarded", atMs: 0 });
  expect(decided).toBe(
    text.replace('state="held"} 1', 'state="held"} 0').replace('state="discarded"} 0', 'state="discarded"} 1'),
  );
});

test("metrics of another run, or of an attempt that is running, do not change when a person decides", () => {
  const decision = { state: "published", atMs: 0 } as const;
  expect(decidedMetrics(text, { runId: "daily-0123456789ab-r2", ...decision })).toBeUndefined();
  const running = metricsText({ record, outcome: undefined, lastSuccessMs: 1000, endedMs: undefined });
  expect(decidedMetrics(running, { runId: "daily-0123456789ab", ...decision })).toBe(running);
});
