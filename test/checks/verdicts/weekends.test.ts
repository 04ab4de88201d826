import { expect, test } from "vitest";
import { judge } from "#src/checks/verdicts/judge.js";
import { defaultChecks } from "#src/checks/verdicts/run-profile.js";
import type { CheckResult, Verdict } from "#src/checks/verdicts/verdict.js";
import { resultLines } from "#src/publish/verdict-text.js";
import {
  type Columns,
  nightsBefore,
  normals,
  numbersProfile,
  runProfile,
  textsProfile,
} from "../../support/run-profiles.js";
import { only, storedVerdict } from "../../support/verdicts.js";

interface Night {
  readonly score: number;
  readonly weight: number;
  readonly seed?: number;
  readonly rare?: number;
}

function night({ score, weight, seed = 0, rare = 40 }: Night): Columns {
  return {
    outputs: {
      score: numbersProfile(normals(1000, { mean: score, seed: seed + 1 })),
      label: textsProfile({ a: 1000 - rare, b: rare }),
    },
    features: { weight: numbersProfile(normals(1000, { mean: 70 + 8 * weight, deviation: 8, seed: seed + 100 })) },
  };
}

/** Judges a run against eight nights, of which the last two are a weekend. */
function afterWeekend(now: Columns, weekend: Night): Verdict {
  const baseline = nightsBefore(8, (nightsAgo) =>
    night(nightsAgo <= 2 ? { ...weekend, seed: nightsAgo } : { score: 0, weight: 0, seed: nightsAgo }),
  );
  return judge({ run: runProfile(now), baseline }, defaultChecks);
}

test("a feature that differs only from a weekend does not explain an output that also moved since weekdays", () => {
  const weekend = { score: 0.4, weight: 0.5 };
  const moved = only(afterWeekend(night({ score: 1, weight: 0 }), weekend), "psi", "score");
  expect(moved).toMatchObject({ level: "hold", against: expect.stringMatching(/-2[12]$/) as string });
  expect(Number(moved.measured)).toBeLessThan(2 * Number(moved.limit));
  expect(moved.feature).toBeUndefined();
  const stored = storedVerdict(afterWeekend(night({ score: 1, weight: 0 }), weekend).results);
  expect(resultLines(stored, "hold")[0]).toMatch(/^score: PSI .* \(limit 0\.25\); no feature explains it$/);
  expect(resultLines(stored, "warn")).toEqual([]);
  const explained = only(afterWeekend(night({ score: 1, weight: 1 }), weekend), "psi", "score");
  expect(explained).toMatchObject({ level: "warn", feature: { column: "weight" } });
});

test("an output is not called unexplained if the previous model shows the cause", () => {
  const { results } = afterWeekend(night({ score: 1, weight: 0 }), { score: 0.4, weight: 0.5 });
  const cause = {
    of: "data",
    previous: 0.3,
    modelSha256: "0123456789abcdef",
    rows: 1000,
    now: { modelSha256: "b", rows: 1000 },
  } as const;
  const caused = results.map((result) => (result.level === "hold" ? Object.assign({}, result, { cause }) : result));
  expect(resultLines(storedVerdict(caused), "hold")[0]).toMatch(/\(limit 0\.25\); caused by the data/);
});

test("a PSI that only warns because a feature moved names the limit above which it would hold", () => {
  const verdict = afterWeekend(night({ score: 1, weight: 1 }), { score: 0.4, weight: 0.5 });
  const { limit } = only(verdict, "psi", "score");
  const lines = resultLines(storedVerdict(verdict.results), "warn");
  expect(limit).toBe(0.25);
  expect(lines).toContainEqual(
    expect.stringMatching(/^score: PSI .* \(limit 0\.25\); only a warning up to 0\.5: feature weight moved, too/),
  );
});

test("a vanished class is attributed only to a feature with a PSI of at least 0.25", () => {
  const still = { score: 0, weight: 0 };
  const causeOf = (weight: number): unknown =>
    afterWeekend(night({ score: 0, weight, rare: 0 }), still).results.find(
      ({ check, level }) => check === "class" && level === "hold",
    )?.feature;
  expect(causeOf(0.4)).toBeUndefined();
  expect(causeOf(1.2)).toMatchObject({ column: "weight" });
});

function scaled(times: number, spread: number, seed: number): Columns {
  const weights = normals(1000, { mean: 70, deviation: spread, seed });
  return { features: { weight: numbersProfile(weights.map((weight) => weight * times)) } };
}

test("the factor of a feature in another unit is found although a weekend is as near as a weekday", () => {
  // The weekend's numbers are farther apart, so no single factor turns them into this night's.
  const baseline = nightsBefore(8, (nightsAgo) => scaled(1, nightsAgo <= 2 ? 16 : 8, nightsAgo));
  const of = (now: Columns): CheckResult["numbers"] =>
    only(judge({ run: runProfile(now), baseline }, defaultChecks), "psi", "weight").numbers;
  expect(Number(of(scaled(1000, 8, 50))["times"])).toBeCloseTo(1000, -2);
  expect(of(scaled(1000, 16, 50))["times"]).toBeDefined();
  expect(of(scaled(1000, 40, 50))["times"]).toBeUndefined();
});
