import type { Measures } from "#src/checks/agreement.js";
import type { ColumnProfile } from "#src/checks/profile/column.js";
import type { Finding } from "#src/checks/check.js";
import { type AttemptRecord, type RunReview, createAttemptRecord } from "#src/report/attempt-record.js";
import type { Outcome, RunReport, VerdictReport } from "#src/report/report.js";
import type { RunComparison } from "#src/run/lifecycle/erasure.js";
import { matchedRows } from "../../support/challenger.js";
import { decidedPage, pageAfter } from "#src/report/page/page.js";
import { describe, expect, test } from "vitest";
import { recordOf } from "../../support/records.js";
import { type ReviewedRun, reviewedRun, scores } from "../../support/reviews.js";
import { normals, numbersProfile, runProfile } from "../../support/run-profiles.js";

const endedMs = Date.UTC(2026, 10, 23, 4);

/** The page of a run whose review or report is another one. */
function pageOf(run: ReviewedRun, review: Partial<RunReview> = {}, report: Partial<RunReport> = {}): string {
  const { record, outcome } = run;
  record.setReview({ ...run.review, ...review });
  const changed: Outcome =
    outcome.kind === "done" ? { kind: "done", report: { ...outcome.report, ...report } } : expect.fail();
  return pageAfter("", { record, outcome: changed, endedMs });
}

function reportOf({ outcome }: ReviewedRun): RunReport & { readonly verdict: VerdictReport } {
  const { report } = outcome.kind === "done" ? outcome : expect.fail();
  return { ...report, verdict: report.verdict ?? expect.fail() };
}

const titleOf = (page: string): string | undefined => /<h1>(.*?)<\/h1>/.exec(page)?.[1];
const cardOf = (page: string, name: string): string =>
  new RegExp(`<figure class="\\w+"><h3>${name}</h3>.*?</figure>`, "s").exec(page)?.[0] ?? expect.fail();

/** A column whose values are NaN but for the numbers. */
const withNaN = (numbers: readonly number[], nan: number): ColumnProfile =>
  numbersProfile([...numbers, ...Array.from({ length: nan }, () => Number.NaN)]);

describe("a feature without values", () => {
  const before = withNaN(normals(398), 2);

  /** The page of a run that is like those before it but for one feature. */
  function pageWith(now: ColumnProfile): string {
    const run = reviewedRun(3);
    const { profile, earlier } = run.review;
    return pageOf(run, {
      profile: { ...profile, features: new Map([["age", now]]) },
      earlier: earlier.map((one) => Object.assign({}, one, { features: new Map([["age", before]]) })),
    });
  }

  test("the card of a feature that is all NaN has a bar for NaN, with the share before", () => {
    const card = cardOf(pageWith(withNaN([], 400)), "age");
    expect(card).toContain('<dt>NaN</dt><dd>100%, <span class="before">before 0.5%</span></dd><dd>400</dd>');
    expect(card).toContain("<figcaption>no values");
    expect(card).not.toContain("not profiled");
  });

  test("the card of a feature that is all NULL has a bar for NULL", () => {
    const card = cardOf(pageWith(numbersProfile(Array.from({ length: 400 }, () => null))), "age");
    expect(card).toContain('<dt>NULL</dt><dd>100%, <span class="before">before 0%</span></dd><dd>400</dd>');
    expect(card).toContain("<dt>NaN</dt><dd>0%");
  });

  test("the card of a feature without rows, or with infinite values only, does not say that its type is not profiled", () => {
    expect(cardOf(pageWith(withNaN([], 0)), "age")).toMatch(/<\/h3><dl.*<figcaption>no values/);
  });

  test("the table of drifts and the small charts count NaN with NULL", () => {
    const page = pageWith(withNaN([], 400));
    expect(page).toMatch(
      /<th>age <small>feature<\/small><\/th>.*?<td>100% <span class="before">0.5%<\/span><\/td><\/tr>/,
    );
    expect(page).toContain("<td>NULL or NaN</td>");
    const run = reviewedRun(3);
    const { profile } = run.review;
    const outputs = new Map([...profile.outputs, ["score", withNaN(normals(100), 300)] as const]);
    expect(pageOf(run, { profile: { ...profile, outputs } })).toContain("<figcaption>NULL/NaN <b>75%</b>");
  });
});

describe("what a run is compared with", () => {
  test("a profile file is named by its file, not as a run, and is in no small chart", () => {
    const run = reviewedRun(3);
    const page = pageOf(run, {
      earlier: run.review.earlier.slice(-1),
      reference: "profiles/training.json",
      history: [],
    });
    expect(page).toContain('<span class="was">the profile training.json</span>');
    expect(page).toContain("</span>: the profile training.json.");
    expect(page).not.toMatch(/run of 22 Nov<\/span>|The last \d+ runs/);
  });

  test("a run that is compared with a file or has no date is not offered --not-normal", () => {
    const run = reviewedRun(3);
    const { decided } = reportOf(run);
    const commands = { ...(decided?.commands ?? expect.fail()), joinsBaseline: false };
    const page = pageOf(run, {}, { decided: decided && { ...decided, commands } });
    expect(page).not.toContain("--not-normal");
    expect(pageOf(run)).toContain("--not-normal");
  });

  test("the small charts show the published runs of the series, not only those that the run is compared with", () => {
    const history = Array.from({ length: 29 }, (_, day) => runProfile({ rows: 100 + day }, day - 10));
    const page = pageOf(reviewedRun(3), { history });
    expect(page).toContain("<h2>The last 30 runs</h2>");
    expect(page).toContain("From 21 Oct to 23 Nov");
    expect(page).toContain("<small>100 to 400</small>");
  });

  test("the page of a run that is compared with nothing says so below its state", () => {
    const run = reviewedRun(0);
    const { verdict } = reportOf(run);
    const notes = ["compared with no earlier run: none has a profile", "only the first 32 of 64 features are profiled"];
    const page = pageOf(run, { earlier: [], history: [] }, { verdict: { ...verdict, notes } });
    const header = /<header.*?<\/header>/s.exec(page)?.[0] ?? "";
    expect(header).toContain("<p>Compared with no earlier run: none has a profile.</p>");
    expect(header).toContain("<p>Only the first 32 of 64 features are profiled.</p>");
  });
});

test("an output and a feature of the same name each have their own drift and level", () => {
  const run = reviewedRun(3, { outputs: { age: scores(3, 20) } });
  const stored = run.review.verdict ?? expect.fail();
  const result = (measured: number, level: Finding["level"]): Finding => ({
    ...(stored.verdict.results.find(({ check, isFeature }) => check === "shape" && isFeature === undefined) ??
      expect.fail()),
    column: "age",
    measured,
    level,
  });
  const results = [{ ...result(0.002, "pass"), isFeature: true as const }, result(6.13, "hold")];
  const page = pageOf(run, { verdict: { ...stored, verdict: { ...stored.verdict, results } } });
  expect(page).toMatch(/<tr class="hold"><th>age<\/th><td>\d+%<\/td>/);
  expect(page).toMatch(/<tr class="pass"><th>age <small>feature<\/small><\/th><td>[\d.]+%<\/td>/);
  expect(page).not.toContain("Features that failed");
});

/** The page of a published run of 5,000 planned rows. */
function published(rows: number, rejected: number): string {
  const run = reviewedRun(0);
  const profile = { ...run.review.profile, rows, rejected };
  return pageOf(run, { profile }, { rowsPlanned: 5000 });
}

describe("the headline of a published run", () => {
  test("the headline counts predictions, then rejected and filtered rows", () => {
    expect(titleOf(published(5000, 0))).toBe("PUBLISHED. 5,000 predictions; 19 checks passed.");
    expect(titleOf(published(4900, 60))).toBe(
      "PUBLISHED. 4,900 predictions, 60 rows rejected, 40 rows filtered out; 19 checks passed.",
    );
  });

  test("a published run without a prediction is not shown as good", () => {
    const page = published(0, 0);
    expect(titleOf(page)).toBe("PUBLISHED. 0 predictions, 5,000 rows filtered out; 19 checks passed.");
    expect(page).toContain('<header class="warned">');
    expect(published(1, 0)).toContain('<header class="good">');
  });
});

const lines = (count: number, text: string): string[] => Array.from({ length: count }, (_, n) => `${text} ${n}`);

test("of many findings five are open, and the commands stand before them", () => {
  const run = reviewedRun(3);
  const { verdict } = reportOf(run);
  const page = pageOf(run, {}, { verdict: { ...verdict, failed: lines(24, "failed"), warnings: lines(6, "warned") } });
  expect(page).toMatch(/<details><summary>18 more<\/summary><ul class="failed"><li>failed 6<\/li>/);
  expect(page).toMatch(/<details><summary>1 more<\/summary><ul class="warned"><li>warned 5<\/li>/);
  expect(page.indexOf("<h2>Commands</h2>")).toBeLessThan(page.indexOf("<li>failed 1</li>"));
  expect(page.indexOf('<p class="reason">failed 0</p>')).toBeLessThan(page.indexOf("<h2>Commands</h2>"));
});

/** The record of an attempt that found the run held. */
function idleRecord(review: RunReview): AttemptRecord {
  const scored = recordOf();
  const record = createAttemptRecord({ info: scored.info, nowMs: () => 0, dateMs: () => 0 });
  record.setRun(scored.run ?? expect.fail());
  record.setReview(review);
  return record;
}

describe("an attempt that scored no row of a held run", () => {
  test("the page still shows the work of the attempt that scored the run, and says what readers have now", () => {
    const run = reviewedRun(3);
    const page = pageOf(run);
    const readers = { run: { runId: "daily-24", params: { ds: "2026-11-24" } } };
    const { outcome } = run;
    const after = pageAfter(page, { record: idleRecord({ ...run.review, readers }), outcome, endedMs });
    expect(titleOf(page)).toBe("HELD. Readers still have the run of 22 Nov.");
    expect(after).toBe(page.replace("22 Nov.</h1>", "24 Nov.</h1>"));
    expect(after).toContain("<dt>rows scored</dt><dd>3</dd>");
  });

  test("the page of a discarded run keeps who discarded it", () => {
    const run = reviewedRun(3);
    const discarded = decidedPage(pageOf(run), {
      runId: "daily-0123456789ab",
      kind: "discarded",
      by: "ana",
      reason: null,
      asBaseline: false,
    });
    const outcome: Outcome = { kind: "done", report: { ...reportOf(run), status: "discarded" } };
    const after = pageAfter(discarded ?? "", { record: idleRecord(run.review), outcome, endedMs });
    expect(titleOf(after)).toBe("DISCARDED. Nothing of this run is published: discarded by ana.");
  });

  test("without an earlier page, the page shows the duration of the run, which this attempt did not score", () => {
    const run = reviewedRun(3);
    const record = idleRecord({ ...run.review, seconds: new Map([[run.review.profile.runId, 12.34]]) });
    const page = pageAfter("", { record, outcome: run.outcome, endedMs });
    expect(page).toContain("<figcaption>duration <b>12 s</b>");
    expect(page).toContain("<summary>Inputs of this attempt, which scored no row</summary>");
  });
});

test("the challenger's section tells where its predictions are, and which rows differ most", () => {
  const row = { row: 1, one: "a", other: "b", distance: 1 };
  const label: Measures = {
    kind: "labels",
    rows: 400,
    figures: { rows_equal: 390, psi: 0.01 },
    flips: [],
    most: [row, { ...row, row: 2 }],
  };
  const figures = { rows_beyond_tolerance: 3, rank_correlation: 0.9, psi: null };
  const score: Measures = { kind: "numbers", rows: 400, figures, flips: [], most: [row] };
  const challenger: RunComparison = {
    model: "b.onnx",
    sha256: "b",
    tolerance: 0.01,
    version: null,
    rows: { ...matchedRows, rows_compared: 400 },
    missed: {},
    place: "out/_challenger",
    columns: [
      ["label", label],
      ["score", score],
    ],
    apart: [],
  };
  const run = reviewedRun(0);
  const page = pageOf(run, { comparison: challenger });
  expect(page).toContain("Its predictions are not published; they are in out/_challenger.");
  expect(page).toContain("0.75% of the rows beyond 0.01, rank correlation 0.9, PSI unknown.");
  expect(page).toContain("<summary>rows that differ: 2</summary>");
  expect(page).toContain("<summary>rows that differ most: 1</summary>");
});
