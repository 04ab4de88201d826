import { expect, test } from "vitest";
import type { Finding } from "#src/checks/check.js";
import { pageAfter } from "#src/report/page/page.js";
import { reviewedRun } from "../../support/reviews.js";

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
