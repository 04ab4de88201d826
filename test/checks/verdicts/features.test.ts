import { describe, expect, test } from "vitest";
import type { ColumnProfile } from "#src/checks/profiles/column-profile.js";
import { judge } from "#src/checks/verdicts/judge.js";
import { defaultChecks, type RunProfile } from "#src/checks/verdicts/run-profile.js";
import type { CheckResult, Verdict } from "#src/checks/verdicts/verdict.js";
import {
  nightsBefore,
  normals,
  numbersProfile,
  runProfile,
  textsProfile,
  vectorsProfile,
} from "../../support/run-profiles.js";
import { only } from "../../support/verdicts.js";

const weights = (seed: number, times = 1): number[] =>
  normals(1000, { mean: 70, deviation: 8, seed }).map((weight) => weight * times);
const usual = (seed: number): Parameters<typeof runProfile>[0] => ({
  outputs: { score: numbersProfile(normals(1000, { seed })), label: textsProfile({ a: 600, b: 400 }) },
  features: {
    weight: numbersProfile(weights(seed + 100)),
    height: numbersProfile(normals(1000, { mean: 170, deviation: 9, seed: seed + 200 })),
  },
});

function verdictOf(run: RunProfile, baseline = nightsBefore(8, usual)): Verdict {
  return judge({ run, baseline }, defaultChecks);
}

const withWeight = (values: readonly (number | null)[], outputs = usual(0).outputs ?? {}): RunProfile =>
  runProfile({ outputs, features: { ...usual(0).features, weight: numbersProfile(values) } });

const weightOf = (values: readonly (number | null)[]): CheckResult =>
  only(verdictOf(withWeight(values)), "psi", "weight");

const withModel = (modelSha256: string, mean: number, seed: number): Parameters<typeof runProfile>[0] => ({
  ...usual(seed),
  modelSha256,
  outputs: { score: numbersProfile(normals(1000, { mean, seed })) },
});

describe("the PSI of a feature that moved", () => {
  test("the PSI of a feature that drifted comes with the factor of all numbers and the medians", () => {
    const { numbers, level, isFeature } = weightOf(weights(1, 1000));
    expect([level, isFeature]).toEqual(["hold", true]);
    expect(numbers).toMatchObject({ runs_before: 8 });
    expect(Number(numbers["times"])).toBeCloseTo(1000, -2);
    expect(Number(numbers["median"])).toBeCloseTo(70_000, -4);
    expect(Number(numbers["smallest_median_before"])).toBeGreaterThan(68);
    expect(Number(numbers["largest_median_before"])).toBeLessThan(72);
  });

  test("one unusual night among the earlier ones does not change the factor", () => {
    const nights = nightsBefore(8, (seed) => ({
      ...usual(seed),
      features: { weight: numbersProfile(weights(seed, seed === 5 ? 1.3 : 1)) },
    }));
    const { numbers } = only(verdictOf(withWeight(weights(1, 1000)), nights), "psi", "weight");
    expect(Number(numbers["largest_median_before"])).toBeGreaterThan(85);
    expect(Number(numbers["middle_median_before"])).toBeCloseTo(70, -1);
    expect(Number(numbers["times"]) / 1000).toBeCloseTo(1, 1);
  });

  test("the PSI of a feature that drifted comes without a factor if the numbers were shifted", () => {
    const { numbers, level } = weightOf(weights(1).map((weight) => weight + 100));
    expect(level).toBe("hold");
    expect(numbers["times"]).toBeUndefined();
    expect(Number(numbers["median"])).toBeCloseTo(170, -1);
  });

  test("the PSI of a feature that drifted comes with medians between the smallest and the largest value", () => {
    expect(weightOf(weights(1).map(() => 1005)).numbers["median"]).toBe(1005);
    const steady = nightsBefore(8, (seed) => ({
      ...usual(seed),
      features: { weight: numbersProfile(Array(1000).fill(1005)) },
    }));
    const { numbers } = only(verdictOf(withWeight(weights(1)), steady), "psi", "weight");
    expect(numbers).toMatchObject({ smallest_median_before: 1005, largest_median_before: 1005 });
  });

  test("the PSI of a feature that drifted comes with the shares of NaN and NULL, now and before, if they rose", () => {
    const nan = weightOf(weights(1).map(() => Number.NaN));
    expect(nan.numbers).toMatchObject({ nan: 1, nan_before: 0 });
    expect(nan.numbers["median"]).toBeUndefined();
    const nulls = weightOf(weights(1).map((weight, row) => (row % 2 === 0 ? weight : null)));
    expect(nulls.numbers).toMatchObject({ nulls: 0.5, nulls_before: 0 });
    expect(weightOf(weights(1, 1000)).numbers["nulls"]).toBeUndefined();
  });

  test("the PSI of a feature that did not drift has the same numbers as that of an output", () => {
    expect(Object.keys(weightOf(weights(1)).numbers)).toEqual(["rows", "rows_before"]);
  });
});

describe("an output that did not pass", () => {
  const far = {
    ...usual(0).outputs,
    score: numbersProfile(normals(1000, { mean: 5 })),
    label: textsProfile({ a: 1000 }),
  };

  test("an output that did not pass names the feature that drifted most, for every check", () => {
    const verdict = verdictOf(withWeight(weights(1, 1000), far));
    const causes = verdict.results.filter(({ feature }) => feature !== undefined);
    expect(new Set(causes.map(({ check, column }) => `${check} ${column}`))).toEqual(
      new Set([
        "psi score",
        "quantiles score",
        "unexplained score",
        "psi label",
        "constant label",
        "class label",
        "unexplained label",
      ]),
    );
    expect(new Set(causes.map(({ feature }) => feature?.column))).toEqual(new Set(["weight"]));
    expect(only(verdict, "psi", "score").feature?.psi).toBeGreaterThan(1);
  });

  test("an output that did not pass names no feature if none drifted", () => {
    const { results } = verdictOf(withWeight(weights(1), far));
    expect(results.filter(({ level }) => level === "hold").length).toBeGreaterThan(0);
    expect(results.filter(({ feature }) => feature !== undefined)).toEqual([]);
  });
});

/** Eight nights, the first ones without profiles of features. */
function olderNights(without: number): RunProfile[] {
  return nightsBefore(8, (nightsAgo) =>
    nightsAgo > 8 - without ? { outputs: usual(nightsAgo).outputs ?? {} } : usual(nightsAgo),
  );
}

describe("earlier runs without profiles of features", () => {
  test("earlier runs without profiles of features do not count as runs to compare a feature with", () => {
    const nulls = weights(1).map((weight, row) => (row % 5 === 0 ? null : weight));
    expect(only(verdictOf(withWeight(nulls), olderNights(0)), "nulls", "weight").level).toBe("hold");
    expect(only(verdictOf(withWeight(nulls), olderNights(2)), "nulls", "weight")).toMatchObject({
      level: "warn",
      lowered: "only 6 of 8 runs to compare with",
    });
  });

  test("earlier runs without profiles of features neither explain a drift nor count as unexplained", () => {
    const far = { ...usual(0).outputs, score: numbersProfile(normals(1000, { mean: 5 })) };
    const { results } = verdictOf(withWeight(weights(1, 1000), far), olderNights(8));
    expect(results.filter(({ check, isFeature }) => check === "unexplained" || isFeature === true)).toEqual([]);
    expect(results.filter(({ feature }) => feature !== undefined)).toEqual([]);
  });
});

const distances = (seed: number): number[] => normals(1000, { seed }).map((value) => 100 * Math.exp(0.8 * value));

function journeys(seed: number, mean = 0, of = (km: number): number => km): Parameters<typeof runProfile>[0] {
  return {
    outputs: { score: numbersProfile(normals(1000, { mean, seed })) },
    features: { distance: numbersProfile(distances(seed + 100).map(of)) },
  };
}

test.each([
  { how: "multiplied by 1.6, as miles in place of kilometres", now: (km: number) => km * 1.6, level: "hold" },
  { how: "divided by 1.6", now: (km: number) => km / 1.6, level: "hold" },
  { how: "larger by 35", now: (km: number) => km + 35, level: "warn" },
])("an output whose PSI is up to twice the limit has level $level if a feature is $how", ({ now, level }) => {
  const baseline = nightsBefore(8, (seed) => journeys(seed));
  const verdict = verdictOf(runProfile(journeys(0, 0.6, now)), baseline);
  expect(Number(only(verdict, "psi", "score").measured)).toBeLessThan(0.5);
  expect(only(verdict, "psi", "distance").level).toBe("warn");
  expect(only(verdict, "psi", "score")).toMatchObject({ level, feature: { column: "distance" } });
});

test("an output is explained by the last run with the same new model, though runs of the old one have the same features", () => {
  const levels = ["new", "old", "newer"].map((modelSha256) => {
    const nights = nightsBefore(8, (ago) => (ago === 1 ? withModel("new", 1, ago) : withModel("old", 0, ago)));
    return only(verdictOf(runProfile(withModel(modelSha256, 1, 9)), nights), "unexplained", "score").level;
  });
  expect(levels).toEqual(["pass", "warn", "warn"]);
});

test("an output that a challenger lacked is not explained by nights on which it was one, after its promotion", () => {
  const night = withModel("new", 1, 9);
  const nights = nightsBefore(8, (ago) =>
    ago === 1
      ? { ...withModel("new", 1, ago), outputs: { score: scoreAt(1, ago), extra: scoreAt(1, ago + 50) } }
      : { ...withModel("old", 0, ago), outputs: { score: scoreAt(0, ago), extra: scoreAt(0, ago + 50) } },
  ).map((run) =>
    run.modelSha256 === "new"
      ? run
      : Object.assign(run, { challenger: { modelSha256: "new", outputs: new Map([["score", scoreAt(1, 3)]]) } }),
  );
  const run = runProfile({ ...night, outputs: { score: scoreAt(1, 9), extra: scoreAt(1, 59) } });
  expect(only(verdictOf(run, nights), "unexplained", "extra").level).toBe("pass");
});

function scoreAt(mean: number, seed: number): ColumnProfile {
  return numbersProfile(normals(1000, { mean, seed }));
}

function embedded(
  seed: number,
  unit: number,
  mixed: number,
  more: readonly number[],
): Parameters<typeof runProfile>[0] {
  const vectors = distances(seed + 100).map((km) => [(3 * km * unit) / 100, (km * unit) / 100]);
  return {
    outputs: { score: numbersProfile(normals(1000, { seed, mean: unit === 1 ? 0 : 0.6 })) },
    features: {
      vector: vectorsProfile(vectors),
      mix: numbersProfile(normals(1000, { mean: mixed, seed: seed + 200 })),
      ...Object.fromEntries(
        more.map((mean, index) => [
          `more${index}`,
          numbersProfile(normals(1000, { mean, seed: seed + 300 + 20 * index })),
        ]),
      ),
    },
  };
}

/** Of a run with a vector in another unit, and other features whose means moved. */
function scoreOf(unit: number, mixed: number, more: readonly number[] = []): CheckResult {
  const still = more.map(() => 0);
  const baseline = nightsBefore(8, (seed) => embedded(seed, 1, 0, still));
  return only(verdictOf(runProfile(embedded(0, unit, mixed, more)), baseline), "psi", "score");
}

test("a feature in another unit explains nothing, also if it is the norm of a vector, and another one only beside a small factor", () => {
  expect(scoreOf(1.6, 0).level).toBe("hold");
  expect(scoreOf(1.6, 0.8)).toMatchObject({ level: "warn", feature: { column: "mix" } });
  expect(scoreOf(2.2, 0.8).level).toBe("hold");
  expect(scoreOf(1.1, 0.8)).toMatchObject({ level: "warn", feature: { column: "mix" } });
});

test.each([
  { name: "two of two", mixed: 0.6, more: [0.8], level: "warn", explains: "more0" },
  { name: "two of three", mixed: 0.6, more: [0.8, 0], level: "warn", explains: "more0" },
  { name: "two of four", mixed: 0.6, more: [0.8, 0, 0], level: "hold", explains: undefined },
  {
    name: "two of two, one of them less than a third as far",
    mixed: 0.2,
    more: [0.8],
    level: "hold",
    explains: undefined,
  },
])("beside a feature in another unit, $name other features that moved: $level", ({ mixed, more, level, explains }) => {
  const found = scoreOf(2.2, mixed, more);
  expect(found.level).toBe(level);
  expect(found.isExplained === true ? found.feature?.column : undefined).toBe(explains);
});
