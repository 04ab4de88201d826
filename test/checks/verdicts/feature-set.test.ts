import { expect, test } from "vitest";
import { judge } from "#src/checks/verdicts/judge.js";
import { defaultChecks, type RunProfile } from "#src/checks/verdicts/run-profile.js";
import type { Verdict } from "#src/checks/verdicts/verdict.js";
import { nightsBefore, normals, numbersProfile, runProfile, textsProfile } from "../../support/run-profiles.js";

const usual = (seed: number): Parameters<typeof runProfile>[0] => ({
  features: { weight: numbersProfile(normals(1000, { mean: 70, deviation: 8, seed })) },
});

const verdictOf = (run: RunProfile): Verdict => judge({ run, baseline: nightsBefore(10, usual) }, defaultChecks);

test("features warn if they are new, gone or of another type", () => {
  const { weight, ...others } = usual(0).features ?? {};
  const { results } = verdictOf(runProfile({ ...usual(0), features: { ...others, ...(weight && { kilos: weight }) } }));
  const changed = results.filter(({ check, isFeature }) => check === "column" && isFeature);
  expect(changed).toMatchObject([
    { column: "weight", level: "warn", measured: "missing", limit: "float64" },
    { column: "kilos", level: "warn", measured: "float64", limit: "missing" },
  ]);
  const found = verdictOf(runProfile({ ...usual(0), features: { weight: textsProfile({ a: 400 }) } }));
  expect(found.results.filter(({ check, isFeature }) => check === "column" && isFeature)).toMatchObject([
    { column: "weight", level: "warn", measured: "utf8", limit: "float64" },
  ]);
  expect(found.outcome).toBe("publish");
});
