import { describe, expect, test } from "vitest";
import { judge } from "#src/checks/verdicts/judge.js";
import { psi } from "#src/checks/verdicts/psi.js";
import { type CheckOptions, defaultChecks, type RunProfile } from "#src/checks/verdicts/run-profile.js";
import type { CheckResult, Verdict } from "#src/checks/verdicts/verdict.js";
import {
  type Columns,
  nightsBefore,
  normals,
  numbersProfile,
  runProfile,
  textsProfile,
  vectorsProfile,
} from "../../support/run-profiles.js";
import { only, told } from "../../support/verdicts.js";

const labels = { a: 600, b: 390, c: 10 };

const usual = (seed: number): Parameters<typeof runProfile>[0] => ({
  outputs: { score: numbersProfile(normals(1000, { seed })), label: textsProfile(labels) },
  features: { weight: numbersProfile(normals(1000, { mean: 70, deviation: 8, seed: seed + 100 })) },
});

function verdictOf(run: RunProfile, options: Partial<CheckOptions> = {}, nights = 10): Verdict {
  return judge({ run, baseline: nightsBefore(nights, usual) }, { ...defaultChecks, ...options });
}

const withNulls = (nulls: number): CheckResult => {
  const values = normals(1000, { mean: 70, deviation: 8 }).map((value, row) => (row < nulls ? null : value));
  return only(verdictOf(runProfile({ ...usual(0), features: { weight: numbersProfile(values) } })), "nulls", "weight");
};

const withScoreAt = (mean: number): Verdict =>
  verdictOf(
    runProfile({ ...usual(0), outputs: { ...usual(0).outputs, score: numbersProfile(normals(1000, { mean })) } }),
  );

const movedWithWeight = (mean: number): CheckResult => {
  const weight = numbersProfile(normals(1000, { mean: 70 + 8 * mean, deviation: 8 }));
  const score = numbersProfile(normals(1000, { mean }));
  const run = runProfile({ outputs: { ...usual(0).outputs, score }, features: { weight } });
  return only(verdictOf(run), "psi", "score");
};

/** A feature of the classes 0 and 1, so many of a hundred being 1. */
const withClasses = (ones: number): Columns => ({
  ...usual(0),
  features: { weight: numbersProfile(Array.from({ length: 4000 }, (_, row) => (row % 100 < ones ? 1 : 0))) },
});

const wandered = (mean: number): Parameters<typeof runProfile>[0] => ({
  outputs: { score: numbersProfile(normals(4000, { mean })) },
  features: { weight: numbersProfile(normals(4000, { mean: 70, seed: 5 })) },
});

const few = (mean: number, seed: number): Parameters<typeof runProfile>[0] => ({
  outputs: { score: numbersProfile(normals(200, { mean, seed })) },
});

const around = (angle: number): Parameters<typeof runProfile>[0] => ({
  outputs: {
    embedding: vectorsProfile(
      normals(500, { deviation: 0.1, seed: 3 }).map((noise) => [Math.cos(angle + noise), Math.sin(angle + noise)]),
    ),
  },
});

const withLabels = (counts: Readonly<Record<string, number>>): Verdict =>
  verdictOf(runProfile({ ...usual(0), outputs: { ...usual(0).outputs, label: textsProfile(counts) } }));

const country = (counts: Readonly<Record<string, number>>) => ({ features: { country: textsProfile(counts) } });

const drifted = (mean: number): RunProfile =>
  runProfile({ ...usual(0), outputs: { ...usual(0).outputs, score: numbersProfile(normals(1000, { mean })) } });

test("a run like those before it is published, and the verdict says what was compared", () => {
  const verdict = verdictOf(runProfile(usual(0)));
  expect(told(verdict)).toEqual([]);
  expect(verdict).toMatchObject({ outcome: "publish", runId: "night-2026-11-23", modelChanged: false });
  expect(verdict.baseline).toHaveLength(8);
  expect(verdict.baseline.at(-1)).toBe("night-2026-11-22");
});

test("a verdict is plain JSON, and each PSI in it is that of its bins", () => {
  const weight = numbersProfile(normals(1000, { mean: 70_000, deviation: 8000 }));
  const verdict = verdictOf(runProfile({ ...usual(0), features: { weight } }));
  expect(JSON.parse(JSON.stringify(verdict))).toEqual(verdict);
  const { measured, bins } = only(verdict, "psi", "weight");
  expect(psi(bins ?? [])).toBe(measured);
});

describe("columns of the run before", () => {
  test("a column of the last run that is gone or of another type holds the run", () => {
    const { score } = usual(0).outputs ?? {};
    const gone = verdictOf(runProfile({ ...usual(0), outputs: { ...(score && { score }) } }));
    expect(only(gone, "column", "label")).toMatchObject({ level: "hold", measured: "missing", limit: "utf8" });
    const label = numbersProfile([1, 2, 3], "int64");
    const retyped = verdictOf(runProfile({ ...usual(0), outputs: { ...usual(0).outputs, label } }));
    expect(only(retyped, "column", "label")).toMatchObject({ level: "hold", measured: "int64", limit: "utf8" });
  });

  test.each([
    ["NULL", null, "nulls"],
    ["NaN", Number.NaN, "nan"],
  ] as const)("a column whose values are all %s holds the run", (_, value, check) => {
    const weight = numbersProfile(Array.from({ length: 1000 }, () => value));
    const verdict = verdictOf(runProfile({ ...usual(0), features: { weight } }));
    expect(only(verdict, check, "weight")).toMatchObject({ level: "hold", measured: 1 });
    expect(only(verdict, "constant", "weight")).toMatchObject({ level: "hold", measured: 1 });
    expect(verdict.outcome).toBe("hold");
  });

  test("a column with 10 points more NULLs than before holds the run, and one with 3 points more does not", () => {
    expect([withNulls(100).level, withNulls(30).level]).toEqual(["hold", "pass"]);
  });

  test("a column that was constant in all earlier runs may stay constant", () => {
    const constant = { features: { version: numbersProfile(Array.from({ length: 1000 }, () => 3)) } };
    const baseline = nightsBefore(10, () => constant);
    expect(told(judge({ run: runProfile(constant), baseline }, defaultChecks))).toEqual([]);
  });
});

describe("drift", () => {
  test("a drift of a feature by a factor of 1000 holds the run, and names the run that is most like this one", () => {
    const weight = numbersProfile(normals(1000, { mean: 70_000, deviation: 8000 }));
    const result = only(verdictOf(runProfile({ ...usual(0), features: { weight } })), "psi", "weight");
    expect(result).toMatchObject({ level: "hold", limit: 1 });
    expect(result.against).toMatch(/^night-2026-11-(1[5-9]|2[0-2])$/);
  });

  test("a small drift of an output warns, and a large one holds the run", () => {
    expect(only(withScoreAt(0.4), "psi", "score").level).toBe("warn");
    expect(only(withScoreAt(1), "psi", "score").level).toBe("hold");
  });

  test("a drift of an output that a feature explains only warns, up to twice the limit", () => {
    expect(movedWithWeight(0.6)).toMatchObject({ level: "warn", lowered: expect.stringContaining("weight") as string });
    expect(movedWithWeight(1.2).level).toBe("hold");
  });

  test("a drift passes if one of the last 8 published runs looked the same", () => {
    const weekend = {
      ...usual(0),
      outputs: { ...usual(0).outputs, score: numbersProfile(normals(1000, { mean: 2 })) },
    };
    const baseline = nightsBefore(10, (nightsAgo) => (nightsAgo === 7 ? weekend : usual(nightsAgo)));
    const verdict = judge({ run: runProfile(weekend), baseline }, defaultChecks);
    expect(verdict.outcome).toBe("publish");
    expect(only(verdict, "psi", "score").level).toBe("pass");
    // And yet its features are those of the other nights.
    expect(only(verdict, "unexplained", "score").level).toBe("warn");
  });

  test("a slow drift warns once, when it exceeds the limit", () => {
    const first = runProfile(wandered(0), 1);
    const slow = (now: number, before: number): CheckResult =>
      only(
        judge(
          { run: runProfile(wandered(now)), baseline: nightsBefore(8, () => wandered(before)), first },
          defaultChecks,
        ),
        "slow_drift",
        "score",
      );
    expect(slow(0.6, 0.4).level).toBe("warn");
    expect(slow(0.65, 0.6).level).toBe("pass");
  });

  test("a drift of p50 by more than half of the interquartile range warns", () => {
    const weight = numbersProfile(normals(1000, { mean: 77, deviation: 8 }));
    const result = only(verdictOf(runProfile({ ...usual(0), features: { weight } })), "quantiles", "weight");
    expect(result.level).toBe("warn");
    expect(Number(result.measured)).toBeCloseTo(7 / (1.349 * 8), 0);
  });

  test("a drift of quantiles does not warn for classes, whose quantiles stay the same or jump", () => {
    const baseline = nightsBefore(8, (nightsAgo) => withClasses(48 - nightsAgo));
    const { results } = judge({ run: runProfile(withClasses(52)), baseline }, defaultChecks);
    expect(results.filter(({ check, column }) => check === "quantiles" && column === "weight")).toEqual([]);
  });

  test("a drift in few rows is found by comparing them with all earlier runs together", () => {
    const baseline = nightsBefore(8, (nightsAgo) => few(0, nightsAgo));
    const result = only(judge({ run: runProfile(few(0.55, 99)), baseline }, defaultChecks), "psi", "score");
    expect(result).toMatchObject({ level: "warn", against: null, numbers: { runs_together: 8 } });
    const freedom = (result.bins ?? []).length - 1;
    expect(result.limit).toBe((freedom + 4 * Math.sqrt(2 * freedom)) * (1 / 1600 + 1 / 200));
  });

  test("a small change of the direction of vectors warns, and a large one holds the run", () => {
    const baseline = nightsBefore(8, () => around(0));
    const levels = [0.05, 0.3, 0.6].map(
      (angle) =>
        only(judge({ run: runProfile(around(angle)), baseline }, defaultChecks), "centroid", "embedding").level,
    );
    expect(levels).toEqual(["pass", "warn", "hold"]);
  });
});

const rowsIn = (rows: number, options: Partial<CheckOptions> = {}): CheckResult =>
  only(verdictOf(runProfile({ ...usual(0), rows }), options, 7), "rows", null);

describe("values", () => {
  test("a class that has all but vanished holds the run", () => {
    expect(only(withLabels({ a: 989, b: 1, c: 10 }), "unexplained", "label").level).toBe("warn");
    const collapsed = withLabels({ a: 989, b: 1, c: 10 }).results.filter(({ check }) => check === "class");
    expect(collapsed.map(({ level, numbers }) => `${numbers["class"]} ${level}`)).toEqual(["a pass", "b hold"]);
  });

  test("a rare class may be missing", () => {
    expect(told(withLabels({ a: 610, b: 390 }))).toEqual([]);
  });

  test("a new value of an output holds the run if it has at least 5 rows", () => {
    expect(only(withLabels({ ...labels, new: 5 }), "unseen_value", "label")).toMatchObject({
      level: "hold",
      numbers: { value: "new", rows_of_value: 5 },
    });
    expect(told(withLabels({ ...labels, new: 4 }))).toEqual([]);
  });

  test("a new value of a feature warns", () => {
    const baseline = nightsBefore(10, () => country({ AT: 500, DE: 500 }));
    const verdict = judge({ run: runProfile(country({ AT: 480, DE: 480, PT: 40 })), baseline }, defaultChecks);
    expect(told(verdict)).toEqual(["unseen_value country warn"]);
  });
});

test("features that are the same as in the last run warn", () => {
  const verdict = verdictOf(runProfile({ ...usual(0), features: usual(1).features ?? {} }));
  expect(told(verdict)).toEqual(["stale null warn"]);
});

test("slices of 1,000 rows or more warn where their outputs drift", () => {
  const slice = (mean: number, rows = 1000): RunProfile => ({
    ...runProfile(usual(0)),
    slices: new Map([["country=FR", new Map([["score", numbersProfile(normals(rows, { mean }))]])]]),
  });
  const baseline = nightsBefore(10, usual).map((run) => Object.assign(run, { slices: slice(0).slices }));
  expect(told(judge({ run: slice(1), baseline }, defaultChecks))).toEqual(["psi country=FR: score warn"]);
  expect(told(judge({ run: slice(1, 999), baseline }, defaultChecks))).toEqual([]);
});

describe("a comparison that would hold only warns", () => {
  test("a comparison on a date that is expected to differ only warns", () => {
    const verdict = verdictOf(drifted(3), {
      expect: [{ date: "2026-11-23", reason: "Black Friday", asBaseline: false }],
    });
    expect(verdict.outcome).toBe("publish");
    expect(only(verdict, "psi", "score")).toMatchObject({
      level: "warn",
      lowered: "expected on 2026-11-23: Black Friday; later runs are not compared with this one",
      isExcused: true,
    });
    const asBaseline = { expect: [{ date: "2026-11-23", reason: "Black Friday", asBaseline: true }] };
    const counted = only(verdictOf(drifted(3), asBaseline), "psi", "score");
    expect([counted.lowered, counted.isExcused]).toEqual(["expected on 2026-11-23: Black Friday", undefined]);
  });

  test("a run on a date that is expected to differ stays in the baseline if it would not have been held", () => {
    const expected = [{ date: "2026-11-23", reason: "Black Friday", asBaseline: false }];
    const young = only(verdictOf(drifted(0.8), { expect: expected }, 7), "psi", "score");
    expect([young.lowered, young.isExcused]).toEqual(["only 7 of 8 runs to compare with", undefined]);
    const onlyWarns = only(verdictOf(drifted(3), { expect: expected, onFail: "warn" }), "psi", "score");
    expect([onlyWarns.lowered, onlyWarns.isExcused]).toEqual(["expected on 2026-11-23: Black Friday", undefined]);
  });

  test("a comparison with fewer than 8 runs only warns, unless its result is far beyond the limit", () => {
    expect(only(verdictOf(drifted(0.8), {}, 7), "psi", "score")).toMatchObject({
      level: "warn",
      lowered: "only 7 of 8 runs to compare with",
    });
    expect(verdictOf(drifted(3), {}, 7).outcome).toBe("hold");
  });

  test("a check of few rows with fewer than 8 earlier runs only warns, and says below which share it would hold the run", () => {
    const why = "only 7 of 8 runs to compare with";
    expect(rowsIn(500)).toMatchObject({ level: "warn", lowered: `${why}; below 25% it would be held` });
    expect(rowsIn(240)).toMatchObject({ level: "hold" });
    expect(rowsIn(240).lowered).toBeUndefined();
    expect(rowsIn(5000)).toMatchObject({ level: "warn", lowered: why });
    const holiday = [{ date: "2026-11-23", reason: "a holiday", asBaseline: false }];
    expect(rowsIn(500, { expect: holiday })).toMatchObject({ level: "warn", lowered: why });
    expect(rowsIn(500, { onFail: "warn" })).toMatchObject({ level: "warn", lowered: why });
  });

  test("with on_fail: warn a run is published, and the levels of its results say what would have held it", () => {
    const verdict = verdictOf(drifted(3), { onFail: "warn" });
    expect([verdict.outcome, only(verdict, "psi", "score").level]).toEqual(["publish", "hold"]);
  });
});

test("the verdict says that no earlier run was made with this model", () => {
  expect(verdictOf(runProfile({ ...usual(0), modelSha256: "b" })).modelChanged).toBe(true);
});
