import { expect, test } from "vitest";
import { hideRareValues } from "#src/checks/profiles/rare-values.js";
import { judge } from "#src/checks/verdicts/judge.js";
import { checkRanks } from "#src/checks/verdicts/rank-check.js";
import { defaultChecks } from "#src/checks/verdicts/run-profile.js";
import type { CheckResult } from "#src/checks/verdicts/verdict.js";
import { nightsBefore, normals, numbersProfile, runProfile, textsProfile } from "../../support/run-profiles.js";
import { randomOf } from "../../support/random.js";
import { only } from "../../support/verdicts.js";

type Of = Parameters<typeof normals>[1];

const scoresOf = (rows: number, of: Of): ReturnType<typeof numbersProfile> => numbersProfile(normals(rows, of));

/** What a check says of the scores of a night, after eight nights of as many rows. */
function found(check: string, of: Of, rows = 200): CheckResult {
  const outputs = (about: Of): Parameters<typeof runProfile>[0] => ({ outputs: { score: scoresOf(rows, about) } });
  const baseline = nightsBefore(8, (nightsAgo) => outputs({ seed: nightsAgo }));
  return only(judge({ run: runProfile(outputs({ seed: 50, ...of })), baseline }, defaultChecks), check, "score");
}

/** The result for numbers after one run. */
function ranksOf(now: readonly (number | null)[], before: readonly (number | null)[], wanted = 0.1): CheckResult[] {
  const earlier = [{ runId: "night", profile: numbersProfile(before) }];
  return checkRanks({ column: "score", now: numbersProfile(now), earlier }, wanted);
}

test("few numbers that are larger, or farther apart, by less than a PSI can tell from chance warn", () => {
  for (const of of [
    { mean: 0.4, seed: 54 },
    { deviation: 1.3, seed: 53 },
  ]) {
    expect(found("psi", of, 100).level).toBe("pass");
    expect(found("ranks", of, 100)).toMatchObject({ level: "warn", against: null, limit: 12 * (1 / 800 + 1 / 100) });
  }
});

test("ranks never hold, and say nothing of a column whose PSI did not pass", () => {
  const moved = numbersProfile(normals(200, { mean: 5 }));
  const [result] = checkRanks(
    { column: "score", now: moved, earlier: [{ runId: "a", profile: scoresOf(200, {}) }] },
    0,
  );
  expect(result?.level).toBe("warn");
  expect(() => found("ranks", { mean: 5 })).toThrow();
  expect(found("psi", { mean: 5 }).level).toBe("hold");
});

test("if a model is new, it is said whether ranks moved because of it", () => {
  const outputs = (about: Of): Parameters<typeof runProfile>[0] => ({ outputs: { score: scoresOf(100, about) } });
  const baseline = nightsBefore(8, (nightsAgo) => outputs({ seed: nightsAgo }));
  const run = runProfile({ ...outputs({ mean: 0.4, seed: 54 }), modelSha256: "new" });
  const previous = { modelSha256: "a", rows: 100, outputs: new Map([["score", scoresOf(100, { seed: 54 })]]) };
  const result = only(judge({ run, baseline, previous }, defaultChecks), "ranks", "score");
  expect(result).toMatchObject({ level: "warn", cause: { of: "model", rows: 100 } });
});

test("ranks are those of all earlier runs together, whose number and values the result has", () => {
  expect(found("ranks", { mean: 0.1 }).numbers).toMatchObject({ values: 200, values_before: 1600, runs_together: 8 });
});

test("the distance is that of the ranks, equal ones being shared, and can be derived from the result", () => {
  // Half of the values are 0, and half 1, now; before, a quarter is 1. The mean rank of the 0s is 0.3125.
  const [result] = ranksOf(
    Array.from({ length: 100 }, (_, row) => row % 2),
    Array.from({ length: 100 }, (_, row) => (row % 4 === 0 ? 1 : 0)),
  );
  const { measured, limit, numbers } = result as CheckResult;
  const [low, high] = [0.3125 - 0.5, 0.8125 - 0.5];
  expect(numbers["location"]).toBeCloseTo(0.25 * Math.sqrt(12) * (high - low), 12);
  expect(numbers["spread"]).toBeCloseTo(0.25 * Math.sqrt(5) * 6 * (high ** 2 - low ** 2), 12);
  expect(measured).toBe(Number(numbers["location"]) ** 2 + Number(numbers["spread"]) ** 2);
  expect(limit).toBe(12 * (1 / 100 + 1 / 100));
});

test("chance alone stays below the limit, however few rows", () => {
  for (const rows of [50, 200, 999]) {
    const beyond = Array.from({ length: 200 }, (_, seed) =>
      ranksOf(normals(rows, { seed: 2 * seed }), normals(rows, { seed: 2 * seed + 1 }), 0),
    ).filter(([result]) => result?.level === "warn");
    expect(beyond.length).toBeLessThanOrEqual(2);
  }
});

test("ranks are not compared with 1,000 rows or more, with fewer than 50 values, or of texts", () => {
  expect(ranksOf(normals(999), normals(50))).toHaveLength(1);
  expect(ranksOf(normals(1000), normals(200))).toEqual([]);
  expect(ranksOf(normals(200), normals(49))).toEqual([]);
  expect(ranksOf([...normals(49), null, null], normals(200))).toEqual([]);
  const texts = textsProfile({ a: 100, b: 100 });
  expect(checkRanks({ column: "label", now: texts, earlier: [{ runId: "a", profile: texts }] }, 0)).toEqual([]);
});

function smallNight(seed: number): Parameters<typeof runProfile>[0] {
  const random = randomOf(seed);
  const days = numbersProfile(Array.from({ length: 400 }, () => 1 + Math.floor(18 * random())));
  return {
    outputs: { score: scoresOf(400, { seed }) },
    features: { days: hideRareValues(new Map([["days", days]])).get("days") ?? days },
  };
}

test("small runs with a feature of few numbers do not warn because its rare values have no names", () => {
  for (const seed of [100, 200, 300]) {
    const { results } = judge(
      { run: runProfile(smallNight(seed)), baseline: nightsBefore(8, (ago) => smallNight(seed + ago)) },
      defaultChecks,
    );
    expect(results.filter(({ column, level }) => column === "days" && level !== "pass")).toEqual([]);
  }
});
