import { expect, test } from "vitest";
import { earlierMetrics, metricsText } from "#src/report/metrics-text.js";
import { failed, partly, recordOf } from "../support/records.js";

const endedMs = Date.UTC(2026, 10, 21, 12, 0, 5);

test("tell of an attempt that ended well", () => {
  const text = metricsText({ record: recordOf(), outcome: partly, lastSuccessMs: endedMs, endedMs });
  expect(`\n${text}`).toMatchSnapshot();
});

test("tell of one that failed, and when the last one before it did not", () => {
  const earlierMs = Date.UTC(2026, 10, 20, 12, 0, 0, 123);
  const text = metricsText({ record: recordOf(), outcome: failed("away"), lastSuccessMs: earlierMs, endedMs });
  expect(text).toContain('infer_batch_exit_code{batch_job="daily",worker="1"} 75\n');
  expect(earlierMetrics(text, recordOf().about).lastSuccessMs).toBe(earlierMs);
});

test("of one that runs have no end, and of the first one no success", () => {
  const text = metricsText({ record: recordOf(), outcome: undefined, lastSuccessMs: undefined, endedMs: undefined });
  expect(text).toContain('infer_batch_running{batch_job="daily",worker="1"} 1\n');
  expect(text).not.toMatch(/exit_code|ended|last_success|undefined|NaN/);
  expect(earlierMetrics(text, recordOf().about).lastSuccessMs).toBeUndefined();
});

test("each line is a comment or a sample, and a sample's metric was declared, once", () => {
  const text = metricsText({ record: recordOf(), outcome: partly, lastSuccessMs: endedMs, endedMs });
  const declared = [...text.matchAll(/^# TYPE (\S+) gauge$/gm)].map(([, name]) => name);
  expect(new Set(declared).size).toBe(declared.length);
  for (const line of text.trimEnd().split("\n")) {
    if (!line.startsWith("# ")) {
      const [, name] = /^([a-z_]+)\{(?:[a-z0-9_]+="(?:[^"\\\n]|\\[\\"n])*",?)+\} -?[\d.e+-]+$/.exec(line) ?? [];
      expect(declared, line).toContain(name);
    }
  }
});

test("a label holds whatever a version or a provider is called", () => {
  const record = recordOf();
  const hostile = { ...record, about: { ...record.about, versions: { "infer-batch": 'a"b\\c\nd' } } };
  const text = metricsText({ record: hostile, outcome: partly, lastSuccessMs: undefined, endedMs });
  expect(text).toContain('version="a\\"b\\\\c\\nd"');
});

test("of what is no text of ours, or of another job or worker, nothing is taken over", () => {
  const { about } = recordOf();
  const text = metricsText({ record: recordOf(), outcome: partly, lastSuccessMs: endedMs, endedMs });
  expect(earlierMetrics(text, about)).toMatchObject({ lastSuccessMs: endedMs, work: { runId: "daily-0123456789ab" } });
  for (const [other, of] of [
    ["", about],
    ["infer_batch_last_success_timestamp_seconds{} soon\n", about],
    [text, { ...about, job: "daily2" }],
    [text, { ...about, worker: { index: 10, count: 20 } }],
  ] as const) {
    expect(earlierMetrics(other, of)).toEqual({ lastSuccessMs: undefined, work: undefined });
  }
});
