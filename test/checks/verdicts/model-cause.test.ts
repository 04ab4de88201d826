import { describe, expect, test } from "vitest";
import { judge } from "#src/checks/verdicts/judge.js";
import { asksForPrevious, nameModelCause, type PreviousModel } from "#src/checks/verdicts/model-cause.js";
import { type ColumnProfiles, defaultChecks, type RunProfile } from "#src/checks/verdicts/run-profile.js";
import type { CheckResult, Verdict } from "#src/checks/verdicts/verdict.js";
import { nightsBefore, normals, numbersProfile, runProfile, textsProfile } from "../../support/run-profiles.js";
import { only } from "../../support/verdicts.js";

const score = (mean: number, seed = 1): ReturnType<typeof numbersProfile> =>
  numbersProfile(normals(1000, { mean, seed }), "float64");
const label = (b: number): ReturnType<typeof textsProfile> => textsProfile({ a: 1000 - b, b });

const usual = (nightsAgo: number): Parameters<typeof runProfile>[0] => ({
  outputs: { score: score(0, 20 + nightsAgo), label: label(300 + nightsAgo) },
});

interface Models {
  /** Means of the scores, and rows of label b, of the new model and of the previous one for the rows of this run. */
  readonly now: { readonly mean: number; readonly b?: number };
  readonly previous?: { readonly mean: number; readonly b?: number };
}

const outputsOf = ({ mean, b = 300 }: Models["now"]): Record<string, ReturnType<typeof score>> => ({
  score: score(mean),
  label: label(b),
});

function verdictOf({ now, previous }: Models, modelSha256 = "new"): Verdict {
  const run = runProfile({ outputs: outputsOf(now), modelSha256 });
  const asked: PreviousModel | undefined = previous && {
    modelSha256: "a",
    rows: 1000,
    outputs: new Map(Object.entries(outputsOf(previous))),
  };
  return judge({ run, baseline: nightsBefore(10, usual), previous: asked }, defaultChecks);
}

const classOf = (models: Models): unknown =>
  verdictOf(models).results.find(({ check, numbers }) => check === "class" && numbers["class"] === "b")?.cause;

const asks = (mean: number, modelSha256: string): boolean => asksForPrevious(verdictOf({ now: { mean } }, modelSha256));

/** A run whose challenger predicted scores with a mean of 1. */
function withChallenger(
  run: RunProfile,
  modelSha256: string,
  outputs: ColumnProfiles = new Map(Object.entries(outputsOf({ mean: 1 }))),
): RunProfile {
  return { ...run, challenger: { modelSha256, outputs } };
}

/** The verdict on a run whose model was the challenger of the last five of ten runs. */
function challenged(mean: number): Verdict {
  const baseline = nightsBefore(10, usual).map((run, index) => (index < 5 ? run : withChallenger(run, "new")));
  return judge({ run: runProfile({ outputs: outputsOf({ mean }), modelSha256: "new" }), baseline }, defaultChecks);
}

const labels = (letter: string): ColumnProfiles =>
  new Map([
    ["label", textsProfile(Object.fromEntries(Array.from({ length: 9 }, (_, at) => [`${letter}${at}`, 100 + at])))],
  ]);

const night = (counts: Readonly<Record<string, number>>, rows = 100_000): Pick<RunProfile, "outputs" | "rows"> => ({
  outputs: new Map([["label", textsProfile(counts)]]),
  rows,
});

const rare = (bin: number): CheckResult => ({
  check: "unseen_value",
  column: "label",
  level: "hold",
  formula: "",
  measured: 0.02,
  limit: 0.001,
  against: null,
  numbers: { value: "of fewer than 20 rows", bin, rows_of_value: 19, rows: 950 },
});

describe("the cause of an output that did not pass with a new model", () => {
  test.each([
    ["model", { now: { mean: 1 }, previous: { mean: 0 } }],
    ["data", { now: { mean: 1 }, previous: { mean: 1 } }],
    ["data", { now: { mean: 1 }, previous: { mean: 0.9 } }],
    ["both", { now: { mean: 1.5 }, previous: { mean: 0.7 } }],
  ] as const)("the cause is %s: means of %j", (of, models) => {
    const { cause, measured } = only(verdictOf(models), "psi", "score");
    expect(cause).toMatchObject({ of, rows: 1000, modelSha256: "a" });
    expect(Number(cause?.previous)).toBeLessThanOrEqual(Number(measured));
  });

  test("a class that only the new model no longer predicts is caused by the model, one that is rare with both by the data", () => {
    expect(classOf({ now: { mean: 0, b: 10 }, previous: { mean: 0, b: 300 } })).toMatchObject({ of: "model" });
    expect(classOf({ now: { mean: 0, b: 10 }, previous: { mean: 0, b: 12 } })).toMatchObject({ of: "data" });
  });

  test("each of many values names its cause, also those that a verdict would only count for the previous model", () => {
    const run = { ...runProfile({ modelSha256: "new" }), outputs: labels("b") };
    const baseline = nightsBefore(10, () => ({})).map((one) => Object.assign(one, { outputs: labels("a") }));
    const causes = (outputs: ColumnProfiles): unknown[] =>
      judge({ run, baseline, previous: { modelSha256: "a", rows: 936, outputs } }, defaultChecks)
        .results.filter(({ check }) => check === "class" || check === "unseen_value")
        .map(({ cause }) => cause?.of);
    expect(causes(labels("b"))).toEqual(Array.from({ length: 10 }, () => "data"));
    // b8 and b7, which have the most rows, are new with the previous model, too.
    const some = new Map([["label", textsProfile({ a0: 700, b8: 118, b7: 118 })]]);
    const of = causes(some).slice(-7);
    expect(of.filter((cause) => cause === "data")).toHaveLength(2);
    expect(of.filter((cause) => cause === "model")).toHaveLength(5);
  });

  test("values without names have the cause of the values with the same hash", () => {
    const previous: PreviousModel = { modelSha256: "a", rows: 950, outputs: labels("b") };
    const causes = nameModelCause([rare(1), rare(2)], [rare(2)], { ...previous, now: runProfile({}) }).map(
      ({ cause }) => cause?.of,
    );
    expect(causes).toEqual(["model", "data"]);
  });

  test("a class or a value of which the sample of the previous model has too few rows has no cause", () => {
    const before = { a: 89_900, b: 10_000, rare: 100 };
    const baseline = nightsBefore(10, () => ({})).map((one) => Object.assign(one, night(before)));
    const run = { ...runProfile({ modelSha256: "new" }), ...night({ a: 89_800, b: 10_000, new: 200 }) };
    const causes = (counts: Readonly<Record<string, number>>, rows: number): unknown[] =>
      judge({ run, baseline, previous: { modelSha256: "a", ...night(counts, rows) } }, defaultChecks)
        .results.filter(({ level, check }) => level === "hold" && (check === "class" || check === "unseen_value"))
        .map(({ check, cause }) => [check, cause?.of]);
    const few = { a: 8980, b: 1000 };
    expect(causes(few, 9980)).toEqual([
      ["class", undefined],
      ["unseen_value", undefined],
    ]);
    expect(causes({ ...few, a: 18_980 }, 19_980)).toEqual([
      ["class", undefined],
      ["unseen_value", "model"],
    ]);
    const enough = { a: 27_000, b: 2990 };
    expect(causes({ ...enough, rare: 30 }, 30_020)).toEqual([
      ["class", "model"],
      ["unseen_value", "model"],
    ]);
    expect(causes({ ...enough, new: 60 }, 30_050)).toEqual([
      ["class", "data"],
      ["unseen_value", "data"],
    ]);
  });

  test("a result that passes, and a result of a run whose previous model was not asked, have no cause", () => {
    expect(only(verdictOf({ now: { mean: 1 }, previous: { mean: 0 } }), "rows").cause).toBeUndefined();
    expect(only(verdictOf({ now: { mean: 0 }, previous: { mean: 1 } }), "psi", "score").cause).toBeUndefined();
    expect(only(verdictOf({ now: { mean: 1 } }), "psi", "score").cause).toBeUndefined();
  });

  test("the previous model is asked if the model is new and an output did not pass", () => {
    expect([asks(1, "new"), asks(1, "a"), asks(0, "new")]).toEqual([true, false, false]);
  });
});

describe("a model that was the challenger of earlier runs", () => {
  test("its predictions are compared with those that it made as the challenger", () => {
    const verdict = challenged(1);
    expect(only(verdict, "psi", "score")).toMatchObject({ level: "pass", measured: expect.closeTo(0, 3) as number });
    expect(verdict.modelChanged).toBe(false);
    expect(verdict.asChallenger).toHaveLength(5);
    expect(only(challenged(3), "psi", "score").level).toBe("hold");
  });

  test("outputs whose distribution is not known of the challenger are compared with those of the earlier model, which is asked for the cause", () => {
    const known: ColumnProfiles = new Map([["score", score(1)]]);
    const baseline: RunProfile[] = nightsBefore(10, usual).map((run) => withChallenger(run, "new", known));
    const of = (now: Models["now"], before: readonly RunProfile[] = baseline): Verdict =>
      judge({ run: runProfile({ outputs: outputsOf(now), modelSha256: "new" }), baseline: before }, defaultChecks);
    expect(of({ mean: 1 }).ofEarlierModel).toEqual(["label"]);
    expect(asksForPrevious(of({ mean: 1 }))).toBe(false);
    const collapsed = of({ mean: 1, b: 10 });
    expect(only(collapsed, "psi", "label").level).toBe("hold");
    expect(asksForPrevious(collapsed)).toBe(true);
    expect(asksForPrevious(of({ mean: 3 }))).toBe(false); // the challenger's scores are known
    const published = of({ mean: 1, b: 10 }, [...baseline, runProfile({ ...usual(1), modelSha256: "new" }, 22)]);
    expect([published.ofEarlierModel, asksForPrevious(published)]).toEqual([undefined, false]);
  });

  test("a model that is not that challenger is compared with the published predictions", () => {
    const baseline = nightsBefore(10, usual).map((run) => withChallenger(run, "c"));
    const verdict = judge({ run: runProfile({ outputs: outputsOf({ mean: 1 }) }), baseline }, defaultChecks);
    expect(only(verdict, "psi", "score").level).toBe("hold");
    expect(verdict.asChallenger).toBeUndefined();
  });
});
