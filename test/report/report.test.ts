import { type RunReport, reportJson, reportText } from "#src/report/report.js";
import { showRate, count } from "#src/base/shown-numbers.js";
import { describe, expect, test } from "vitest";

const report: RunReport = {
  runId: "daily-churn-7f3a90c1d2e4",
  status: "complete",
  verdict: null,
  rowsPlanned: 1_000_000,
  rowsScored: 1_000_000,
  rowsRejected: 0,
  rowsFiltered: 0,
  rowsReused: 0,
  rowsByTrees: 900_000,
  spansPlanned: 4,
  spansCommitted: 4,
  spansResumed: 0,
  shardsUnplanned: 0,
  inputWaitSeconds: 0,
  seconds: 1.9004,
  batchSize: 1024,
  provider: "cpu",
  providersMissing: [],
  trees: "compiled",
  engineBusy: 0.62549,
  stageSeconds: { read: 0, decode: 0.5, pack: 0.25, infer: 1.188, encode: 0.1, commit: 0.2, wait: 1 },
  unitsReadAgain: { unsupported: 2 },
  output: "out/dt=2026-11-20",
};
const already: RunReport = {
  ...report,
  status: "already_complete",
  rowsScored: 0,
  spansResumed: 4,
  seconds: 0,
  batchSize: null,
  provider: null,
  trees: null,
  engineBusy: null,
  stageSeconds: null,
};

describe("the report as JSON", () => {
  test("the JSON report has exactly these fields, in this order, on one line", () => {
    expect(reportJson(report)).toBe(
      '{"run_id":"daily-churn-7f3a90c1d2e4","status":"complete","rows_planned":1000000,"spans_planned":4,"spans_committed":4,"spans_resumed":0,"shards_unplanned":0,"rows_scored":1000000,' +
        '"rows_rejected":0,"rows_filtered":0,"rows_reused":0,"rows_by_trees":900000,' +
        '"input_wait_seconds":0,"seconds":1.9,"rows_per_second":526205,"batch_size":1024,"provider":"cpu","providers_missing":[],"trees":"compiled","engine_busy":0.625,' +
        '"stage_seconds":{"read":0,"decode":0.5,"pack":0.25,"infer":1.188,"encode":0.1,"commit":0.2,"wait":1},"units_read_again":{"unsupported":2},"verdict":null,"output":"out/dt=2026-11-20"}',
    );
  });

  test("the JSON report has each number in its field", () => {
    const told = {
      ...report,
      rowsPlanned: 1,
      rowsScored: 2,
      spansPlanned: 3,
      spansCommitted: 4,
      spansResumed: 5,
      shardsUnplanned: 6,
      batchSize: 7,
    };
    expect(JSON.parse(reportJson(told))).toMatchObject({
      rows_planned: 1,
      rows_scored: 2,
      spans_planned: 3,
      spans_committed: 4,
      spans_resumed: 5,
      shards_unplanned: 6,
      batch_size: 7,
    });
  });

  test("the JSON report of a complete run has no rate, batch or provider, and the same fields", () => {
    const fields = JSON.parse(reportJson(already)) as object;
    expect(fields).toMatchObject({
      status: "already_complete",
      seconds: 0,
      rows_per_second: 0,
      batch_size: null,
      provider: null,
      engine_busy: null,
      stage_seconds: null,
    });
    expect(Object.keys(fields)).toEqual(Object.keys(JSON.parse(reportJson(report)) as object));
  });

  test("the JSON report is one line for any name of the folder", () => {
    expect(reportJson({ ...report, output: 'a\n"b' })).not.toContain("\n");
  });
});

describe("the report as text", () => {
  test("the text report is one line", () => {
    expect(reportText(report)).toMatchInlineSnapshot(
      `"daily-churn-7f3a90c1d2e4: complete, 1,000,000 rows scored in 1.9 s (526 k rows/s) -> out/dt=2026-11-20"`,
    );
  });

  test("the text report says how many spans were found committed", () => {
    expect(reportText({ ...report, rowsScored: 250_000, spansResumed: 3, seconds: 12.4 })).toMatchInlineSnapshot(
      `"daily-churn-7f3a90c1d2e4: complete, 250,000 rows scored in 12 s (20 k rows/s), 3 spans found committed -> out/dt=2026-11-20"`,
    );
    expect(reportText({ ...report, spansResumed: 1 })).toContain(", 1 span found committed");
  });

  test("the text report says that there was nothing to do", () => {
    expect(reportText(already)).toMatchInlineSnapshot(
      `"daily-churn-7f3a90c1d2e4: already complete, 1,000,000 rows in out/dt=2026-11-20"`,
    );
  });

  test("the text report counts the checks of a published run, and says nothing of them where there is no verdict", () => {
    const counts = "64 checks passed, 3 warned";
    const verdict = {
      outcome: "publish",
      failed: [],
      warnings: [],
      warned: undefined,
      counts,
      toCorrect: "the input",
      comparedWith: [],
      notes: [],
      coarse: [],
    } as const;
    expect(reportText({ ...report, verdict })).toMatch(/ rows\/s\); 64 checks passed, 3 warned -> out\//);
    expect(reportText({ ...already, verdict })).toMatch(/ in out\/dt=2026-11-20; 64 checks passed, 3 warned$/);
    expect(reportText({ ...report, verdict: null })).not.toContain("check");
    expect(JSON.parse(reportJson({ ...report, verdict }))).toMatchObject({
      verdict: { outcome: "publish", failed: [], warnings: [], compared_with: [], notes: [] },
    });
    expect(reportJson({ ...report, verdict })).not.toContain(counts);
  });

  test("the text report of a run that is held says that nothing of it is published", () => {
    expect(reportText({ ...report, status: "held" })).toMatch(
      /: held, 1,000,000 rows .*; nothing of it is published in out\/dt=2026-11-20$/,
    );
  });

  test("the text report of a run that took no time has no infinite rate", () => {
    expect(reportText({ ...report, rowsScored: 0, seconds: 0 })).toContain("0 rows scored in 0.0 s (0 rows/s)");
  });
});

test("count() uses the singular for one", () => {
  expect([count(0, "row"), count(1, "row"), count(1797, "row")]).toEqual(["0 rows", "1 row", "1,797 rows"]);
});

test.each([
  [0, "0 rows/s"],
  [9_999, "9999 rows/s"],
  [10_000, "10 k rows/s"],
  [999_000, "999 k rows/s"],
  [2_400_000, "2.40 M rows/s"],
])("showRate shows %d rows per second as %s", (rate, shown) => {
  expect(showRate(rate)).toBe(shown);
});
