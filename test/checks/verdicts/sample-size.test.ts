import { expect, test } from "vitest";
import type { ColumnProfile } from "#src/checks/profiles/column-profile.js";
import { judge } from "#src/checks/verdicts/judge.js";
import { defaultChecks, type RunProfile } from "#src/checks/verdicts/run-profile.js";
import type { FewSampled } from "#src/checks/verdicts/verdict.js";
import { fewSampledText } from "#src/publish/compared-text.js";
import { nightsBefore, normals, numbersProfile, runProfile } from "../../support/run-profiles.js";

/** The profile of a feature that the model read in so many rows, by a sample. */
function sampleOf(sampled: number, rows: number, seed = 1): ColumnProfile {
  return { ...numbersProfile(normals(sampled, { seed })), all: { rows, nulls: 0 } };
}

function nightOf(sampled: number, rows: number): RunProfile {
  const key: ColumnProfile = { kind: "rows", type: "int64", rows, nulls: 0 };
  return runProfile({ rows, features: { id: key, weight: sampleOf(sampled, rows) } });
}

function foundIn(
  now: readonly [number, number],
  before: readonly [number, number],
  nights = 8,
): FewSampled | undefined {
  const baseline = nightsBefore(nights, (ago) => ({ rows: before[1], features: { weight: sampleOf(...before, ago) } }));
  return judge({ run: nightOf(...now), baseline }, defaultChecks).fewSampled;
}

test("a verdict says that features were not compared if the sample of a run has few of many rows", () => {
  expect(foundIn([41, 2000], [2000, 2000])).toEqual({ of: "run", sampled: 41, rows: 2000 });
  expect(foundIn([400, 2000], [2000, 2000])).toEqual({ of: "run", sampled: 400, rows: 2000 });
  expect(foundIn([9000, 20_000], [9000, 20_000])).toBeUndefined();
});

test("a verdict says that features were not compared if the samples of all earlier runs have few of many rows", () => {
  expect(foundIn([2000, 2000], [41, 2000])).toEqual({ of: "earlier", sampled: 41, rows: 2000 });
  expect(foundIn([400, 2000], [41, 2000])).toMatchObject({ of: "earlier", sampled: 41 });
});

test("a verdict says nothing of the samples of small runs, or of a run that is compared with none", () => {
  expect(foundIn([60, 60], [2000, 2000])).toBeUndefined();
  expect(foundIn([41, 900], [2000, 2000])).toBeUndefined();
  expect(foundIn([2000, 2000], [600, 600])).toBeUndefined(); // the job has grown
  expect(foundIn([41, 2000], [2000, 2000], 0)).toBeUndefined();
});

test("the note on a small sample says whose it is, and which comparisons were left out", () => {
  expect(fewSampledText({ of: "run", sampled: 41, rows: 2000 })).toBe(
    "features were compared without PSI and quantiles: the sample of this run has only 41 of 2,000 rows, and a PSI needs 50",
  );
  expect(fewSampledText({ of: "earlier", sampled: 50, rows: 2000 })).toBe(
    "features were compared without quantiles: the largest sample of an earlier run has only 50 of 2,000 rows, and quantiles need 1,000",
  );
});
