import { describe, expect, test } from "vitest";
import { decidedPage, pageAfter, style } from "#src/report/page/page.js";
import { resultLines } from "#src/run/lifecycle/verdict-text.js";
import { type AttemptRecord, createAttemptRecord } from "#src/report/attempt-record.js";
import type { Outcome } from "#src/report/report.js";
import { failed, partly, recordOf } from "../../support/records.js";
import { reviewedRun, scores } from "../../support/reviews.js";
import { textsProfile } from "../../support/run-profiles.js";
import type { Finding } from "#src/checks/check.js";
import { valueBars } from "#src/report/page/sections.js";

const endedMs = Date.UTC(2026, 10, 21, 12, 0, 5);
const hostile = `<script>alert("x")</script>&'\u0000`;
const runId = "daily-0123456789ab";

const pageOf = (record: AttemptRecord, outcome: Outcome): string => pageAfter("", { record, outcome, endedMs });

const heldRun = reviewedRun(3, { rows: 310 });
const heldPage = pageOf(heldRun.record, heldRun.outcome);
const published = reviewedRun(0);
const publishedPage = pageOf(published.record, published.outcome);

const pageWith = (trees: string | null): string => pageOf(recordOf({ trees }), partly);

/** The rows of columns in the table of drifts. */
const driftRows = (page: string): string[] => page.match(/<tr class="\w+"><th>/g) ?? [];

/** The places of texts in a page, which must be in the page once at least. */
const placesOf = (page: string, texts: readonly string[]): number[] => texts.map((text) => page.indexOf(text));

describe("the page of a held run", () => {
  test("the page of a held run begins with its state, its first failed check and the commands that decide", () => {
    const failedChecks = resultLines(heldRun.review.verdict ?? expect.fail(), "hold");
    const [reason, ...others] = failedChecks;
    expect([reason, others]).toEqual([expect.stringMatching(/^score: median/), []]);
    const places = placesOf(heldPage, [
      "<h1>HELD. Readers still have the run of 22 Nov.</h1>",
      `<p class="reason">${reason}</p>`,
      "<h2>Commands</h2>",
      "infer-batch approve job.yaml --param ds=2026-11-23 --run daily-0123456789ab</pre>",
      "infer-batch discard job.yaml",
      "--new-run</pre>",
      "<h2>Predictions</h2>",
      "<h2>Tonight beside the usual</h2>",
      "<h2>The last 10 runs</h2>",
      "<details><summary>Speed, engine and inputs of this attempt</summary>",
    ]);
    expect(places).not.toContain(-1);
    expect(places).toEqual(places.toSorted((one, other) => one - other));
  });

  test("the page of a held run does not name a run that readers have if none is known", () => {
    const { record, outcome, review } = reviewedRun(3);
    record.setReview({ ...review, readers: undefined });
    expect(pageOf(record, outcome)).toContain("<h1>HELD. Nothing of this run is published.</h1>");
  });

  test("the page of a held run shows the column that failed first, and ranks columns by how far they are", () => {
    const cards = [...heldPage.matchAll(/<figure class="(\w+)"><h3>(\w+)<\/h3>/g)].map(([, level, name]) => [
      level,
      name,
    ]);
    expect(cards).toEqual([
      ["hold", "score"],
      ["pass", "label"],
      ["pass", "age"],
    ]);
    const table = /<tbody>(.*?)<\/tbody>/s.exec(heldPage)?.[1] ?? "";
    const psis = [...table.matchAll(/<th>(\w+).*?<td>([\d.]+)%/g)].map(([, name, psi]) => [name, psi]);
    expect(psis[0]).toEqual(["score", expect.stringMatching(/^\d{3,}$/)]);
    expect(psis).toHaveLength(3);
  });

  test("the page of a run that a feature holds shows that feature before the predictions, and does not fold it", () => {
    const { record, outcome, review } = reviewedRun(3);
    const { verdict } = review;
    const results = verdict?.verdict.results.map((result) =>
      result.column === "age" && result.check === "shape" ? { ...result, level: "hold" as const } : result,
    );
    record.setReview({
      ...review,
      verdict: verdict && { ...verdict, verdict: { ...verdict.verdict, results: results ?? [] } },
    });
    const page = pageOf(record, outcome);
    const places = placesOf(page, ["<h2>Features that failed</h2>", "<h3>age</h3>", "<h2>Predictions</h2>"]);
    expect(places).not.toContain(-1);
    expect(places).toEqual(places.toSorted((one, other) => one - other));
    expect(page).not.toContain("<summary>Distributions of");
    expect(heldPage).not.toContain("Features that failed");
  });

  test("the page of a held run becomes that of a published or discarded run after a decision", () => {
    const approved =
      decidedPage(heldPage, { runId, kind: "approved", by: "ana", reason: "a <new> shop", asBaseline: true }) ?? "";
    expect(approved).toContain("<h1>PUBLISHED. Approved by ana: a &lt;new&gt; shop.</h1>");
    expect(approved).toContain("<title>PUBLISHED: ");
    expect(approved).not.toMatch(/HELD|infer-batch approve/);
    expect(approved).toContain('<p class="reason">score: median');
    const discarded = decidedPage(heldPage, { runId, kind: "discarded", by: "ana", reason: null, asBaseline: false });
    expect(discarded).toContain("<h1>DISCARDED. Nothing of this run is published: discarded by ana.</h1>");
    expect(
      decidedPage(heldPage, { runId: `${runId}-r2`, kind: "approved", by: "ana", reason: null, asBaseline: false }),
    ).toBeUndefined();
  });
});

describe("the page of a published run", () => {
  test("the page of a published run says how many checks passed and warned, and offers no commands", () => {
    expect(publishedPage).toContain("<h1>PUBLISHED. 400 predictions; 19 checks passed.</h1>");
    expect(publishedPage).not.toContain("<h2>Commands</h2>");
    const { record, outcome } = published;
    const warned = outcome.kind === "done" && outcome.report.verdict;
    const report = { ...(outcome.kind === "done" ? outcome.report : expect.fail()) };
    const verdict = { ...(warned || expect.fail()), failed: ["score: PSI 2"], warnings: ["rows: few"] };
    verdict.counts = "18 checks passed, 1 warned, 1 failed";
    const page = pageOf(record, { kind: "done", report: { ...report, verdict } });
    expect(page).toContain("<h1>PUBLISHED. 400 predictions; 18 checks passed, 1 warned, 1 failed.</h1>");
    expect(page).toContain("<li>score: PSI 2</li><li>rows: few</li>");
  });

  test("the page of a run without checks shows the predictions of the attempt, with exact counts", () => {
    const page = pageOf(recordOf(), partly);
    for (const shown of [
      "<h1>UNFINISHED. 1 span left to other workers.</h1>",
      "2026-11-21 12:00:00 UTC to 2026-11-21 12:00:05 UTC, worker 1 of 4",
      "<dt>engine busy</dt><dd>75%</dd>",
      "<dt>spans of the run</dt><dd>1 of 2</dd>",
      "<dt>infer</dt><dd></dd><dd>1.5 s</dd>",
      "<dt>0.5</dt><dd>33.3%</dd><dd>1</dd>",
      "<dt>a</dt><dd>33.3%</dd><dd>1</dd>",
      "<dt>null</dt><dd></dd><dd>1</dd>",
      "d".repeat(64),
      "20.19.0",
    ]) {
      expect(page).toContain(shown);
    }
    expect(page).not.toMatch(/Drift by column|The last \d+ runs/);
  });

  test("the page shows labels of this run next to those of the run before, counted exactly", () => {
    expect(publishedPage).toContain('<dt>no</dt><dd>74.8% <span class="before">75%</span></dd><dd>299</dd>');
    expect(publishedPage).toContain('<dt>yes</dt><dd>25.3% <span class="before">25%</span></dd><dd>101</dd>');
  });
});

describe("the page of an attempt", () => {
  test("the page of an attempt that planned no run does not offer to continue one", () => {
    const { info } = recordOf();
    const record = createAttemptRecord({
      info: { ...info, command: "infer-batch run job.yaml" },
      nowMs: () => 0,
      dateMs: () => 0,
    });
    expect(pageOf(record, failed("no such column"))).toContain("<p>To run it, after you fix the cause:</p>");
  });

  test("the page of a failed attempt shows its error and exit code", () => {
    const page = pageOf(recordOf(), failed("connecting to db: <refused>"));
    expect(page).toContain("<h1>FAILED. ");
    expect(page).toContain("connecting to db: &lt;refused&gt;");
    expect(page).toContain("<span>ds=x</span>");
    expect(page).toContain("<pre>infer-batch run daily.yaml --param ds=x</pre>");
    const discarded = decidedPage(page, { runId, kind: "discarded", by: "ana", reason: null, asBaseline: false }) ?? "";
    expect(discarded).toContain("<h1>DISCARDED. Nothing of this run is published: discarded by ana.</h1>");
    expect(discarded).not.toContain("infer-batch run");
  });

  test("the page of an attempt says what computed decision trees, if the model has some", () => {
    expect(pageWith("compiled")).toContain("<dt>rows by compiled trees</dt><dd>3</dd>");
    expect(pageWith("compiled")).toContain("<tr><th>decision trees</th><td>compiled</td></tr>");
    expect(pageWith("onnxruntime: too wide")).toContain("<td>onnxruntime: too wide</td>");
    expect(pageWith(null)).not.toContain("trees");
  });

  test("the page of an attempt with nothing to do is the earlier page, unless a person has decided since", () => {
    const record = createAttemptRecord({ info: recordOf().info, nowMs: () => 0, dateMs: () => 0 });
    record.setRun(recordOf().run ?? expect.fail());
    const report = published.outcome.kind === "done" ? published.outcome.report : expect.fail();
    const idle: Outcome = { kind: "done", report: { ...report, status: "already_complete", verdict: null } };
    const after = (earlier: string): string => pageAfter(earlier, { record, outcome: idle, endedMs });
    expect(after(publishedPage)).toBe(publishedPage);
    expect(after(heldPage)).toContain("<h1>PUBLISHED. 10 input rows.</h1>");
    expect(after(heldPage)).toContain("<h2>Tonight beside the usual</h2>");
    for (const other of ["", pageOf(recordOf(), failed("away")), heldPage.replaceAll(runId, "x")]) {
      expect(after(other)).not.toContain("Drift by column");
      expect(after(other)).toContain("<h1>PUBLISHED.");
    }
  });

  test("the page makes no request", () => {
    for (const page of [heldPage, publishedPage, pageWith(null)]) {
      expect(page).not.toMatch(/<script|<link|<img|<iframe|@import|url\(|https?:|\bon\w+=/i);
      expect(page).toContain(`content="default-src 'none'; style-src 'unsafe-inline'"`);
    }
  });

  test("the page escapes names of jobs, models, columns, labels, params and errors", () => {
    const escaped = "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;&#39;\\x00";
    const names = { job: hostile, modelUri: hostile, column: hostile, text: hostile, param: hostile };
    const { record, outcome } = reviewedRun(3, {
      ...names,
      outputs: { [hostile]: scores(0), b: textsProfile({ [hostile]: 400 }) },
    });
    for (const page of [pageOf(recordOf(names), failed(hostile)), pageOf(record, outcome)]) {
      expect(page).not.toContain("<script");
      expect(page).not.toContain("\u0000");
      expect(page.split(escaped).length - 1).toBeGreaterThanOrEqual(7);
    }
  });

  test("the page of a run with 32 outputs folds what did not change, and is smaller than 300 KB", () => {
    const outputs = Object.fromEntries(Array.from({ length: 30 }, (_, index) => [`p${index}`, scores(index, index)]));
    const { record, outcome } = reviewedRun(3, { outputs });
    const page = pageOf(record, outcome);
    expect(page.match(/<figure class="/g)).toHaveLength(33);
    const [open = "", folded = ""] = page.split(/<details><summary>\d+ more columns<\/summary>/);
    expect([
      driftRows(open).length,
      driftRows(folded).length,
      driftRows(folded).filter((row) => !row.includes("pass")),
    ]).toEqual([12, 21, []]);
    expect(page.length).toBeLessThan(300_000);
  });
});

test("the small charts mark the latest run in the colour and shape of the check of what they show, and no other", () => {
  const run = reviewedRun(3);
  const stored = run.review.verdict ?? expect.fail();
  const [some = expect.fail()] = stored.verdict.results;
  const rejects: Finding = { ...some, check: "rejects", column: null, level: "warn" };
  const results = [...stored.verdict.results.filter(({ check }) => check !== "rejects"), rejects];
  run.record.setReview({ ...run.review, verdict: { ...stored, verdict: { ...stored.verdict, results } } });
  const page = pageAfter("", { ...run, endedMs: 0 });
  const charts = /<h2>The last 10 runs<\/h2>.*?<\/section>/s.exec(page)?.[0] ?? "";
  const found = [...charts.matchAll(/<figcaption>([\w/]+) <b>.*?<\/figcaption>.*?<(circle|path class="mark \w+")/g)];
  const said = [...charts.matchAll(/<figcaption>([\w/]+) <b>[^<]*<\/b> <b class="\w+">(\w+)<\/b>/g)];
  const dot = "circle";
  expect(found.map(([, title, mark]) => `${title} ${mark}`)).toEqual([
    `rows ${dot}`,
    'rejected path class="mark warn"',
    `duration ${dot}`,
    `NULL/NaN ${dot}`, // of score
    'median path class="mark hold"',
    `p90 ${dot}`,
    `NULL/NaN ${dot}`, // of label
  ]);
  expect(said.map(([, title, word]) => `${title} ${word}`)).toEqual(["rejected warns", "median failed"]);
});

type Colours = Readonly<Record<string, string>>;

const [light = {}, dark = {}] = [...style.matchAll(/:root \{([^}]*)\}/g)].map(
  ([, declarations = ""]): Colours =>
    Object.fromEntries([...declarations.matchAll(/--(\w+): (#[\da-f]+);/g)].map(([, name, value]) => [name, value])),
);

/** The relative luminance of WCAG 2.2. */
function luminance(colour: string): number {
  const hex = colour.length === 4 ? colour.replaceAll(/[\da-f]/g, "$&$&") : colour;
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const share = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one = "#000", other = "#000"): number {
  const [low = 0, high = 0] = [luminance(one), luminance(other)].toSorted((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

describe.each([
  ["light", light],
  ["dark", dark],
])("the %s colours of the page", (name, { paper, shade, ink, quiet, good, warned, bad, now, was }) => {
  test(`${name} texts have a contrast of at least 4.5 with the page, as WCAG asks of small text`, () => {
    const ratios = [ink, quiet, good, warned, bad].map((colour) => contrast(colour, paper));
    expect(Math.min(...ratios, contrast(ink, shade))).toBeGreaterThan(4.5);
    expect(ratios).toHaveLength(5);
  });

  test(`${name} bars differ from the page by at least 3, and outlines from bars, as WCAG asks of graphics`, () => {
    expect(Math.min(contrast(now, paper), contrast(was, now), contrast(was, paper))).toBeGreaterThan(3);
  });
});

test("an empty label is named as such on the page, and one that ends with a blank is in quotes", () => {
  const values = [
    { name: "", now: 2, before: 0 },
    { name: " ", now: 1, before: 0 },
    { name: "0.30000000000000004", now: 1, before: 0 },
    { name: "north ", now: 1, before: 0 },
  ];
  const page = valueBars({ kind: "values", values, others: undefined, total: 4, totalBefore: 0 }).markup;
  expect([...page.matchAll(/<dt>(.*?)<\/dt>/g)].map(([, label]) => label)).toEqual([
    "(empty text)",
    "(white space)",
    "0.3",
    "&quot;north &quot;",
  ]);
});
