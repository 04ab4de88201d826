import { describe, expect, test } from "vitest";
import { type ColumnProfile, mergeProfiles } from "#src/checks/profiles/column-profile.js";
import { parseProfile, profileJson } from "#src/checks/profiles/profile-json.js";
import { boundValues } from "#src/checks/verdicts/bound-values.js";
import { judge } from "#src/checks/verdicts/judge.js";
import { defaultChecks } from "#src/checks/verdicts/run-profile.js";
import type { CheckResult, Verdict } from "#src/checks/verdicts/verdict.js";
import { integersProfile, fullLimits, nightsBefore, runProfile, textsProfile } from "../../support/run-profiles.js";

type Two = readonly [ColumnProfile, ColumnProfile];

const names = (first: string, count: number): Record<string, number> =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`${first}${index}`, 50]));
const texts = (first: string): ColumnProfile => textsProfile({ ok: 500, ...names(first, 4) });
const integers = (from: number): ColumnProfile =>
  integersProfile(Array.from({ length: 700 }, (_, row) => (row < 500 ? 7n : BigInt(from + (row % 4)))));

/** The profiles of both spans, merged in both orders, and from JSON, whose keys have an order of their own. */
function merged([one, other]: Two): readonly ColumnProfile[] {
  const both = mergeProfiles(one, other, fullLimits);
  return [both, mergeProfiles(other, one, fullLimits), parseProfile(profileJson(both))];
}

function verdictOn(now: ColumnProfile, before: ColumnProfile, kind: "outputs" | "features"): Verdict {
  const night = (label: ColumnProfile) => ({ [kind]: { label }, rows: label.rows });
  return judge({ run: runProfile(night(now)), baseline: nightsBefore(8, () => night(before)) }, defaultChecks);
}

describe("a verdict does not depend on the order in which the profiles of spans were merged", () => {
  test.each<[string, string, ColumnProfile, Two, "outputs" | "features"]>([
    ["texts", "unseen_value", textsProfile({ ok: 1400 }), [texts("a"), texts("b")], "outputs"],
    [
      "integers",
      "unseen_value",
      integersProfile(Array.from({ length: 1400 }, () => 7n)),
      [integers(90), integers(1000)],
      "outputs",
    ],
    ["texts of a feature", "unseen_value", textsProfile({ ok: 1400 }), [texts("a"), texts("b")], "features"],
  ])("of new %s", (_, check, before, spans, kind) => {
    const [one, ...others] = merged(spans).map((now) => verdictOn(now, before, kind));
    expect(one?.results.filter((result) => result.check === check)).toHaveLength(5);
    expect(others).toEqual([one, one]);
  });

  test.each<[string, ColumnProfile, Two]>([
    ["that are gone", textsProfile({ ok: 1400 }), [texts("a"), texts("b")]],
    ["that are still there", textsProfile({ ok: 1000, ...names("b", 4), ...names("a", 4) }), [texts("a"), texts("b")]],
    [
      "of integers that are gone",
      integersProfile(Array.from({ length: 1400 }, () => 7n)),
      [integers(90), integers(1000)],
    ],
  ])("of classes %s", (_, now, spans) => {
    const [one, ...others] = merged(spans).map((before) => verdictOn(now, before, "outputs"));
    expect(one?.results.filter(({ check }) => check === "class").length).toBeGreaterThanOrEqual(5);
    expect(others).toEqual([one, one]);
  });
});

function unseen(value: string, bin?: number): CheckResult {
  return {
    check: "unseen_value",
    column: "label",
    level: "warn",
    formula: "",
    measured: 0.5,
    limit: 0.1,
    against: null,
    numbers: { value, ...(bin === undefined ? {} : { bin }) },
  };
}

test("among equally important results, those that come first by name and then by bin are listed, in any order of the input", () => {
  const all = [
    unseen("a"),
    unseen("b"),
    unseen("rare", 3),
    unseen("rare", 20),
    unseen("rare", 100),
    unseen("rare", 101),
    unseen("z"),
  ];
  expect(boundValues(all).listed).toEqual(all.slice(0, 5));
  expect(boundValues(all.toReversed()).listed).toEqual(all.slice(0, 5).toReversed());
});
