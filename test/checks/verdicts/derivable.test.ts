import { expect, test } from "vitest";
import { judge } from "#src/checks/verdicts/judge.js";
import { psi } from "#src/checks/verdicts/psi.js";
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

/** Nights whose score and weight move together; the label is `a` in more and more rows. */
const night = (mean: number, seed: number): Parameters<typeof runProfile>[0] => ({
  outputs: {
    score: numbersProfile(normals(1000, { mean, seed })),
    label: textsProfile({ a: 600 + 10 * seed, b: 400 - 10 * seed }),
    place: vectorsProfile(normals(300, { mean: 1, deviation: 0.2, seed }).map((x) => [x, 1])),
  },
  features: { weight: numbersProfile(normals(1000, { mean: 70 + 8 * mean, deviation: 8, seed: seed + 100 })) },
});

const baseline = nightsBefore(8, (ago) => night(0, ago));

function stored(run: RunProfile, first?: RunProfile): Verdict {
  return JSON.parse(JSON.stringify(judge({ run, baseline, first }, defaultChecks))) as Verdict;
}

function numberOf({ numbers }: CheckResult, name: string): number {
  return Number(numbers[name]);
}

test("each PSI in a stored verdict is that of its bins, also if the check passes", () => {
  const { results } = stored(runProfile(night(0, 9)), runProfile(night(0, 20), 1));
  const found = results.filter(({ check }) => check === "psi" || check === "slow_drift");
  expect(found.map(({ check, column, level }) => `${check} ${column} ${level}`)).toEqual([
    "psi weight pass",
    "psi score pass",
    "slow_drift score pass",
    "psi label pass",
    "slow_drift label pass",
    "psi place pass",
    "slow_drift place pass",
  ]);
  for (const { bins, measured } of found) {
    expect(psi(bins ?? [])).toBe(measured);
  }
});

test("the drift of each feature that results name is in a stored verdict, with its run and bins", () => {
  for (const mean of [0.6, 3]) {
    const { results, featureDrifts = [] } = stored(runProfile(night(mean, 9)));
    const named = results.flatMap(({ feature }) => (feature === undefined ? [] : [feature]));
    expect(named.length).toBeGreaterThan(0);
    for (const feature of named) {
      const drift = featureDrifts.find((one) => one.column === feature.column && one.against === feature.against);
      expect(psi(drift?.bins ?? [])).toBe(feature.psi);
    }
    const names = featureDrifts.map(({ column, against }) => `${column} ${against}`);
    expect(new Set(names).size).toBe(names.length);
    for (const { numbers, feature } of results.filter(({ check }) => check === "unexplained")) {
      expect(feature?.psi ?? 0).toBe(numbers["largest_feature_psi"]);
    }
  }
});

test("a known slow drift keeps its finite limit, and says how many earlier runs were above theirs", () => {
  const far = runProfile(night(-3, 30), 1);
  const result = only(stored(runProfile(night(0, 9)), far), "slow_drift", "score");
  expect(result).toMatchObject({ level: "pass", limit: 0.25, numbers: { earlier_runs_above: 8 } });
  expect(Number(result.measured)).toBeGreaterThan(Number(result.limit));
});

test("a class names the run in which it was rarest, with its rows there", () => {
  const label = textsProfile({ a: 990, b: 10 });
  const run = runProfile({ ...night(0, 9), outputs: { ...night(0, 9).outputs, label } });
  const result = stored(run).results.find(({ check, level }) => check === "class" && level === "hold");
  expect(result).toMatchObject({
    against: "night-2026-11-15",
    numbers: { class: "b", rows_of_class_before: 320, rows_before: 1000 },
  });
  expect(result?.measured).toBe(10 / ((320 / 1000) * 1000));
});

test("a cosine is that of the stored product and lengths", () => {
  const result = only(stored(runProfile(night(0, 9))), "centroid", "place");
  const lengths = numberOf(result, "length") * numberOf(result, "length_before");
  expect(numberOf(result, "product") / lengths).toBeCloseTo(Number(result.measured), 12);
  expect(numberOf(result, "length")).toBeGreaterThan(250);
  expect(numberOf(result, "length")).toBeLessThanOrEqual(300);
});

const scattered = (seed: number): Parameters<typeof runProfile>[0] => ({
  outputs: {
    place: vectorsProfile(normals(30, { mean: 1, deviation: 2, seed }).map((x, at) => [x, Math.sin(at), 1])),
  },
});

test("the limit of a cosine of few vectors is that of the stored variance and numbers of vectors", () => {
  const before = nightsBefore(8, (ago) => scattered(ago));
  const result = only(judge({ run: runProfile(scattered(9)), baseline: before }, defaultChecks), "centroid", "place");
  const [n, m, v] = ["vectors", "vectors_before", "variance"].map((name) => numberOf(result, name)) as [
    number,
    number,
    number,
  ];
  expect([n, m]).toEqual([30, 30]);
  expect(result.limit).toBeLessThan(0.9);
  expect(result.limit).toBeCloseTo(1 / Math.sqrt((1 + (6 * v) / n) * (1 + (6 * v) / m)), 12);
});

function excess({ measured, limit }: CheckResult): number {
  return Number(measured) / Number(limit);
}

/** A run whose output has so many labels, named with a letter, the first of which have the most rows. */
const labelled = (letter: string, count: number): Parameters<typeof runProfile>[0] => ({
  outputs: {
    label: textsProfile(Object.fromEntries(Array.from({ length: count }, (_, at) => [`${letter}${at}`, 300 - at]))),
  },
});

const ofLabels = (letter: string): Verdict =>
  judge({ run: runProfile(labelled(letter, 12)), baseline: nightsBefore(8, () => labelled("a", 12)) }, defaultChecks);

const valuesOf = ({ results }: Verdict, name: string): unknown[] =>
  results.flatMap(({ numbers }) => (name in numbers ? [numbers[name]] : []));

test("of many classes and values of a column those that matter most are listed, and the others counted", () => {
  const changed = ofLabels("b");
  expect(valuesOf(changed, "class")).toEqual(["a0", "a1", "a2", "a3", "a4"]);
  expect(valuesOf(changed, "value")).toEqual(["b0", "b1", "b2", "b3", "b4"]);
  const seven = { column: "label", level: "hold", results: 7 };
  expect(changed.unlisted).toEqual([
    { ...seven, check: "class" },
    { ...seven, check: "unseen_value" },
  ]);
  const same = ofLabels("a");
  expect(valuesOf(same, "class")).toHaveLength(5);
  expect(same.unlisted).toEqual([{ ...seven, level: "pass", check: "class" }]);
  expect(verdictOfWide(1).unlisted).toBeUndefined();
});

test("a class that all but vanished is listed among many that pass, and so is the pass that is closest to its limit", () => {
  const counts = Object.fromEntries(Array.from({ length: 12 }, (_, at) => [`a${at}`, 300]));
  const now = { outputs: { label: textsProfile({ ...counts, a10: 1, a11: 100 }) } };
  const nights = nightsBefore(8, () => ({ outputs: { label: textsProfile(counts) } }));
  const { results } = judge({ run: runProfile(now), baseline: nights }, defaultChecks);
  const listed = results
    .filter(({ check }) => check === "class")
    .map(({ numbers, level }) => [numbers["class"], level]);
  expect(listed).toHaveLength(6);
  expect(listed).toEqual(
    expect.arrayContaining([
      ["a10", "hold"],
      ["a11", "pass"],
    ]),
  );
});

/** So many outputs and features, of which the first ones have this mean. */
function wide(mean: number, seed: number, count: number): Parameters<typeof runProfile>[0] {
  const columns = (from: number): Record<string, ReturnType<typeof numbersProfile>> =>
    Object.fromEntries(
      Array.from({ length: count }, (_, at) => [
        `column_${at}`,
        numbersProfile(normals(1000, { mean: at === 0 ? mean : 0, seed: from + at })),
      ]),
    );
  return { outputs: columns(seed), features: columns(seed + 50) };
}

function verdictOfWide(count: number): Verdict {
  const nights = nightsBefore(8, (ago) => wide(0, ago, count));
  return judge({ run: runProfile(wide(0.2, 500, count)), baseline: nights }, defaultChecks);
}

test("the bins of a verdict with 32 outputs and 32 features are all stored; of more results, those closest to their limits", () => {
  const all = verdictOfWide(32);
  expect(all.results.filter(({ check, bins }) => check === "psi" && bins === undefined)).toEqual([]);
  expect(JSON.stringify(all).length).toBeLessThan(256 * 1024);
  const some = verdictOfWide(64).results.filter(({ check }) => check === "psi");
  const left = some.filter(({ bins }) => bins !== undefined);
  expect(left.length).toBeLessThan(some.length);
  expect(JSON.stringify(left.map(({ bins }) => bins)).length).toBeLessThan(66 * 1024);
  const passing = left.filter(({ level }) => level === "pass");
  const dropped = some.filter(({ bins }) => bins === undefined);
  expect(Math.min(...passing.map(excess))).toBeGreaterThanOrEqual(Math.max(...dropped.map(excess)));
});
