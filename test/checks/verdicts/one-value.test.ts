import { expect, test } from "vitest";
import type { ColumnProfile } from "#src/checks/profiles/column-profile.js";
import { judge } from "#src/checks/verdicts/judge.js";
import { defaultChecks } from "#src/checks/verdicts/run-profile.js";
import type { CheckResult, Verdict } from "#src/checks/verdicts/verdict.js";
import { nightsBefore, normals, numbersProfile, runProfile, textsProfile } from "../../support/run-profiles.js";
import { only } from "../../support/verdicts.js";

type Columns = Parameters<typeof runProfile>[0];

/** A night on which all rows have one value of a feature. */
function nightOf(date: ColumnProfile, seed: number, mean = 0): Columns {
  return {
    outputs: { score: numbersProfile(normals(2000, { seed, mean })) },
    features: { date, weight: numbersProfile(normals(2000, { seed: seed + 100 })) },
  };
}

const all = (value: number): ColumnProfile => numbersProfile(Array.from({ length: 2000 }, () => value));

/** The verdict on a night after `before`, the values of the earlier nights from the latest on. */
function verdictOn(now: ColumnProfile, before: readonly ColumnProfile[], mean = 0): Verdict {
  const baseline = nightsBefore(before.length, (ago) => nightOf(before[ago - 1] as ColumnProfile, ago));
  return judge({ run: runProfile(nightOf(now, 0, mean)), baseline }, defaultChecks);
}

function failedOf({ results }: Verdict, column: string): Pick<CheckResult, "check" | "level">[] {
  return results
    .filter((result) => result.column === column && result.level !== "pass")
    .map(({ check, level }) => ({ check, level }));
}

const dates = Array.from({ length: 8 }, (_, ago) => 20_261_125 - ago);

const textOf = (date: number): ColumnProfile => textsProfile({ [date]: 2000 });

test("the date of the night as a feature holds no night, as a number or as a text", () => {
  expect(failedOf(verdictOn(all(20_261_126), dates.map(all)), "date")).toEqual([]);
  expect(failedOf(verdictOn(textOf(20_261_126), dates.map(textOf)), "date")).toEqual([]);
  expect(failedOf(verdictOn(all(20_261_126), [all(20_261_125)]), "date")).toEqual([]); // the second night
});

test("a feature that had one value in all earlier runs, and now has another, warns", () => {
  const verdict = verdictOn(
    all(12),
    dates.map(() => all(11)),
  );
  expect(failedOf(verdict, "date")).toEqual([{ check: "psi", level: "warn" }]);
});

const days = (): ColumnProfile => numbersProfile(Array.from({ length: 2000 }, (_, row) => 11 + (row % 2)));

test("a feature that had several values, and now has one, is compared as before", () => {
  const found = failedOf(verdictOn(all(11), dates.map(days)), "date");
  expect(found).toContainEqual({ check: "constant", level: "hold" });
});

test("the date of the night explains no drift of an output", () => {
  const score = only(verdictOn(all(20_261_126), dates.map(all), 0.65), "psi", "score");
  expect(Number(score.measured)).toBeLessThan(0.5);
  expect(score.level).toBe("hold");
  expect(score.feature).toBeUndefined();
});

const week = (last: number): ColumnProfile =>
  numbersProfile(Array.from({ length: 2000 }, (_, row) => last - (row % 7)));

test("a feature with the dates of the last days as numbers holds no night", () => {
  expect(failedOf(verdictOn(week(20_261_126), dates.map(week)), "date")).toEqual([]);
});
