import { expect, test } from "vitest";
import type { CheckResult } from "#src/checks/verdicts/verdict.js";
import { checkGauges, decidedMetrics } from "#src/report/metrics/check-metrics.js";
import { metricsText } from "#src/report/metrics/metrics-text.js";
import { reviewedRun } from "../support/reviews.js";

const { record, outcome, review } = reviewedRun(3);
const text = metricsText({ record, outcome, lastSuccessMs: undefined, endedMs: 0 });
const labels = 'batch_job="daily",worker="1"';

const result = (column: string, level: CheckResult["level"], measured: number): CheckResult => ({
  check: "class",
  column,
  level,
  formula: "",
  measured,
  limit: 1,
  against: null,
  numbers: {},
});

test("the metrics of a held run have a value, a limit and a result for each check and column", () => {
  const psi = review.verdict?.verdict.results.find(({ check, column }) => check === "psi" && column === "score");
  expect(psi?.level).toBe("hold");
  for (const [name, value] of [
    ["value", psi?.measured],
    ["limit", psi?.limit],
    ["result", 2],
  ] as const) {
    expect(text).toContain(`\ninfer_batch_check_${name}{${labels},check="psi",column="score"} ${value}\n`);
  }
  expect(text).toContain(`\ninfer_batch_check_result{${labels},check="rows",column=""} 0\n`);
  expect(text).toContain(`\ninfer_batch_run_state{${labels},state="held"} 1\n`);
});

test("the metrics of a check whose value is a text have its result only", () => {
  expect(text).toContain(`infer_batch_check_result{${labels},check="column",column="score"} 0\n`);
  expect(text).not.toContain(`infer_batch_check_value{${labels},check="column"`);
});

test("several results of one check and column become one sample, the worst, and the number of samples is bounded", () => {
  const many = Array.from({ length: 1000 }, (_, index) => result(`c${index}`, "pass", index));
  const results = [...many, result("c7", "warn", 0.5), result("c7", "pass", 3), result("last", "hold", 0.1)];
  const { verdict } = review.verdict ?? expect.fail();
  const stored = { ...(review.verdict ?? expect.fail()), verdict: { ...verdict, results } };
  const [value] = checkGauges({ ...review, verdict: stored });
  expect(value?.samples).toHaveLength(300);
  expect(value?.samples.slice(0, 2)).toEqual([
    { labels: { check: "class", column: "last" }, value: 0.1 },
    { labels: { check: "class", column: "c7" }, value: 0.5 },
  ]);
});

test("the metrics of a held run change to published after a person approves it", () => {
  const decided = decidedMetrics(text, { runId: "daily-0123456789ab", state: "published" });
  expect(decided).toContain(`infer_batch_run_state{${labels},state="held"} 0\n`);
  expect(decided).toContain(`infer_batch_run_state{${labels},state="published"} 1\n`);
  expect(decidedMetrics(text, { runId: "daily-0123456789ab-r2", state: "published" })).toBe(text);
});
