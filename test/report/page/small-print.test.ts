import { expect, test } from "vitest";
import type { ColumnProfile } from "#src/checks/profiles/column-profile.js";
import type { CheckResult } from "#src/checks/verdicts/verdict.js";
import { pageAfter } from "#src/report/page/page.js";
import { reviewedRun } from "../../support/reviews.js";
import { textsProfile } from "../../support/run-profiles.js";

const shops = (name: string): ReadonlyMap<string, ColumnProfile> => new Map([["age", textsProfile({ [name]: 400 })]]);

/** The only shop of each of the nine nights before the run; of the last eight, most have b. */
const before = ["c", "b", "b", "c", "d", "e", "f", "g", "h"];

test.each<[string, Partial<CheckResult> | undefined, string, string, string]>([
  ["several runs together", { against: null, numbers: { runs_together: 8 } }, "6.13", "8 runs together", "b"],
  ["one run", { against: "night-2026-11-19" }, "6.13", "19 Nov", "e"],
  ["a run that the page lacks", { against: "night-2026-10-01" }, "6.13", "–", "–"],
  ["no run, without a PSI", undefined, "–", "22 Nov", "h"],
])("the small print of a column compared with %s shows what the PSI is against", (_, found, psi, name, shop) => {
  const { record, outcome, review } = reviewedRun(3);
  const { profile, earlier, verdict } = review;
  const stored = verdict ?? expect.fail();
  const psiOfAge = stored.verdict.results.find(({ check, column }) => check === "psi" && column === "age");
  const others = stored.verdict.results.filter((result) => result !== psiOfAge);
  const changed = { ...(psiOfAge ?? expect.fail()), measured: 6.13, ...found };
  record.setReview({
    ...review,
    profile: { ...profile, features: shops("z") },
    earlier: earlier.map((one, night) => Object.assign({}, one, { features: shops(before[night] ?? expect.fail()) })),
    verdict: {
      ...stored,
      verdict: { ...stored.verdict, results: found === undefined ? others : [...others, changed] },
    },
  });
  const page = pageAfter("", { record, outcome, endedMs: Date.UTC(2026, 10, 23, 4) });
  const row = /<th>age <small>feature<\/small><\/th>(.*?)<\/tr>/.exec(page)?.[1] ?? expect.fail();
  const cells = [...row.matchAll(/<td>(.*?) <span class="before">(.*?)<\/span>/g)];
  expect(cells.slice(0, 2).map(([, now, then]) => [now, then])).toEqual([
    [psi, name],
    ["z", shop],
  ]);
});
