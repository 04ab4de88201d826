import { describe, expect, test } from "vitest";
import { mergeProfiles, profileLimits } from "#src/checks/profiles/column-profile.js";
import { parseProfile, profileJson } from "#src/checks/profiles/profile-json.js";
import { hideRareValues } from "#src/checks/profiles/rare-values.js";
import { hashBins, hashOfName } from "#src/checks/profiles/value-names.js";
import type { ColumnProfile } from "#src/checks/profiles/column-profile.js";
import { judge } from "#src/checks/verdicts/judge.js";
import { defaultChecks } from "#src/checks/verdicts/run-profile.js";
import type { CheckResult, Verdict } from "#src/checks/verdicts/verdict.js";
import {
  type Columns,
  nightsBefore,
  numbersProfile,
  runProfile,
  textsProfile,
  vectorsProfile,
} from "../../support/run-profiles.js";
import { only } from "../../support/verdicts.js";

const hidden = (profile: ColumnProfile): ColumnProfile =>
  hideRareValues(new Map([["x", profile]])).get("x") ?? expect.fail();

const named = (profile: ColumnProfile): unknown => JSON.parse(JSON.stringify(profileJson(profile)))["values"];

const repeat = <T>(value: T, times: number): T[] => Array.from({ length: times }, () => value);

/** The kinds of profiles that name values, with one value of 19 rows and one of 20. */
const kinds: Readonly<Record<string, readonly [ColumnProfile, string]>> = {
  texts: [textsProfile({ Ann: 19, Bob: 20 }), "Bob"],
  numbers: [numbersProfile([...repeat(4711, 19), ...repeat(5, 20)]), "5"],
  "whole numbers": [numbersProfile([...repeat(4711, 19), ...repeat(5, 20)], "int64"), "5"],
};

describe.each(Object.keys(kinds))("a profile without rare values: %s", (kind) => {
  const [whole, name] = kinds[kind] ?? expect.fail();

  test(`a profile without rare values names the ${kind} of 20 rows or more, and is stored and read as it is`, () => {
    const profile = hidden(whole);
    expect(named(profile)).toEqual({ [name]: 20 });
    expect(JSON.stringify(profileJson(profile))).not.toMatch(/Ann|"4711"/);
    expect(parseProfile(JSON.parse(JSON.stringify(profileJson(profile))))).toEqual(profile);
    expect(hidden(profile)).toEqual(profile);
  });

  test(`merged profiles without rare values name only ${kind} that no profile hides, and count each row once`, () => {
    const limits = profileLimits(1);
    const other = kind === "texts" ? textsProfile({ Ann: 100 }) : numbersProfile(repeat(4711, 100));
    const [one, two] = [
      mergeProfiles(hidden(whole), hidden(other), limits),
      mergeProfiles(hidden(other), hidden(whole), limits),
    ];
    expect(profileJson({ ...one, type: "" })).toEqual(profileJson({ ...two, type: "" }));
    expect(named(one)).toEqual({ [name]: 20 });
    const { rare = [] } = profileJson(one) as { readonly rare?: readonly number[] };
    expect(rare.at(-1)).toBe(119);
  });
});

test("a profile without rare values names no norm of few vectors", () => {
  const profile = hidden(vectorsProfile([[3, 4], ...repeat([0, 1], 20)]));
  expect(profile.kind === "vectors" && profile.vectors.norms.values).toMatchObject({ counts: new Map([["1", 20]]) });
});

type Counts = Readonly<Record<string, number>>;

const cities = (counts: Counts): Parameters<typeof runProfile>[0] => ({
  features: { city: hidden(textsProfile(counts)) },
  rows: 200,
});

/** What the checks say of a text feature, compared with eight runs whose rare values are hidden. */
function judged(now: Counts, before: Counts): Verdict {
  return judge({ run: runProfile(cities(now)), baseline: nightsBefore(8, () => cities(before)) }, defaultChecks);
}

const binOf = (name: string): number => hashOfName(name) % hashBins;

/** Another name that is counted in the same bin. */
function nameLike(name: string): string {
  const names = Array.from({ length: 10_000 }, (_, index) => `city ${index}`);
  return names.find((one) => binOf(one) === binOf(name)) ?? expect.fail();
}

const ages = (numbers: readonly number[]): Columns => ({ features: { age: hidden(numbersProfile(numbers)) } });

/** What the check for constant columns says of 40 equal numbers, after runs with these. */
const constantAfter = (before: readonly number[]): CheckResult => {
  const run = runProfile(ages(repeat(5, 40)));
  return only(judge({ run, baseline: nightsBefore(8, () => ages(before)) }, defaultChecks), "constant", "age");
};

const withFewOfCork = (rows: number): Columns => cities({ Rome: 200 - rows, Cork: rows });

describe("checks of a feature with rare values", () => {
  test("a feature that has one value in all rows, as it had when these were too few to name it, is no constant", () => {
    const { level, numbers } = only(judged({ DE: 25 }, { DE: 19 }), "constant", "city");
    expect([level, numbers["largest_share_before"]]).toEqual(["pass", 1]);
  });

  test("a feature that has one value in all rows, where rare ones had fewer of them, is a constant", () => {
    const { level, numbers } = only(judged({ DE: 57 }, { AT: 19, DE: 19, FR: 19 }), "constant", "city");
    expect([level, numbers["largest_share_before"]]).toEqual(["hold", 1 / 3]);
    expect(only(judged({ DE: 57 }, { AT: 10, FR: 10 }), "constant", "city").numbers).toMatchObject({
      largest_share_before: 1 / 2,
    });
    const different = Array.from({ length: 30 }, (_, row) => row);
    expect(constantAfter(different)).toMatchObject({ level: "hold", numbers: { largest_share_before: 1 / 30 } });
    expect(constantAfter([...different, ...repeat(7, 100)])).toMatchObject({
      level: "pass",
      numbers: { largest_share_before: 101 / 130 },
    });
  });

  test("a feature of two rare values that are counted together is no constant", () => {
    const ten = Object.fromEntries(Array.from({ length: 10 }, (_, index) => [`town ${index}`, 20]));
    const verdict = judged({ Cork: 15, [nameLike("Cork")]: 15 }, ten);
    expect(only(verdict, "constant", "city")).toMatchObject({ level: "pass", numbers: { rows_of_value: 19 } });
  });

  test("a feature whose values are rare in one run and frequent in the other has not drifted by that", () => {
    const verdict = judged({ Rome: 150, Oslo: 21, Bern: 19, Cork: 10 }, { Rome: 150, Oslo: 19, Bern: 21, Cork: 10 });
    expect(only(verdict, "psi", "city").measured).toBeLessThan(0.01);
    expect(verdict.results.filter(({ check }) => check === "unseen_value")).toEqual([]);
  });

  test("a new value of few rows warns, and is not named", () => {
    const verdict = judged({ Rome: 150, Oslo: 33, Bern: 17 }, { Rome: 150, Oslo: 40, Cork: 10 });
    expect(only(verdict, "unseen_value", "city")).toMatchObject({
      level: "warn",
      measured: 17 / 200,
      numbers: { value: "of fewer than 20 rows", rows_of_value: 17 },
    });
    expect(JSON.stringify(verdict)).not.toContain("Bern");
  });

  test("a value that was rare before and is frequent now is not a new one", () => {
    const verdict = judged({ Rome: 150, Oslo: 50 }, { Rome: 190, Oslo: 10 });
    expect(verdict.results.filter(({ check }) => check === "unseen_value")).toEqual([]);
    expect(JSON.stringify(verdict)).not.toContain("Oslo");
  });

  test("a frequent new value is found though a rare one was counted in its bin, with the share that this one had", () => {
    const name = nameLike("Cork");
    const verdict = judged({ Rome: 6000, [name]: 3000 }, { Rome: 9000, Cork: 1 });
    const found = only(verdict, "unseen_value", "city");
    expect(found).toMatchObject({
      level: "warn",
      numbers: { value: name, rows_of_value: 3000, rows: 9000, largest_share_before: 1 / 9001 },
    });
    expect(found.formula).toContain("10 times");
  });

  test("a new value of few rows is found though an even rarer one was counted in its bin", () => {
    const verdict = judged({ Rome: 150, Oslo: 33, [nameLike("Cork")]: 17 }, { Rome: 150, Oslo: 49, Cork: 1 });
    expect(only(verdict, "unseen_value", "city")).toMatchObject({
      numbers: { value: "of fewer than 20 rows", largest_share_before: 1 / 200 },
    });
  });

  test("a value that may have been among the rare ones is new only if it had ten times the share of each run", () => {
    const baseline = nightsBefore(8, withFewOfCork); // 1 to 8 rows
    const unseenOf = (rows: number): unknown[] => {
      const run = runProfile(cities({ Rome: 200 - rows, [nameLike("Cork")]: rows }));
      return judge({ run, baseline }, defaultChecks).results.filter(({ check }) => check === "unseen_value");
    };
    expect([unseenOf(80).length, unseenOf(81).length]).toEqual([0, 1]);
  });
});
