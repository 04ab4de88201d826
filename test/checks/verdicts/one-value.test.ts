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

/** A night of 2,000 rows, of which some are late rows of the days before. */
function nightWithLate(late: number): (date: number) => ColumnProfile {
  return (date) => numbersProfile(Array.from({ length: 2000 }, (_, row) => date - (row < late ? 1 + (row % 2) : 0)));
}

test.each([10, 100, 900])("the date of the night holds no night if %d of 2,000 rows are late ones", (late) => {
  const night = nightWithLate(late);
  expect(failedOf(verdictOn(night(20_261_126), dates.map(night)), "date")).toEqual([]);
  const text = (date: number): ColumnProfile => textsProfile({ [date - 1]: late, [date]: 2000 - late });
  expect(failedOf(verdictOn(text(20_261_126), dates.map(text)), "date")).toEqual([]);
});

test("late rows on some nights only change nothing, and on the second night the date only warns", () => {
  const mixed = dates.map((date, ago) => (ago % 2 === 0 ? all(date) : nightWithLate(30)(date)));
  expect(failedOf(verdictOn(nightWithLate(30)(20_261_126), mixed), "date")).toEqual([]);
  expect(failedOf(verdictOn(all(20_261_126), mixed), "date")).toEqual([]);
  const second = failedOf(verdictOn(nightWithLate(30)(20_261_126), [nightWithLate(30)(20_261_125)]), "date");
  expect(second.filter(({ level }) => level === "hold")).toEqual([]);
});

const code = (most: number): ColumnProfile =>
  numbersProfile(Array.from({ length: 2000 }, (_, row) => (row < 1400 ? most : 30_001 + (row % 3))));

test("a code that most rows have is compared, also if another one has them tonight", () => {
  const before = dates.map(() => code(30_002));
  expect(failedOf(verdictOn(code(30_003), before), "date")).toContainEqual({ check: "psi", level: "hold" });
  expect(failedOf(verdictOn(code(30_001), [...before.slice(0, -1), code(30_001)]), "date")).toEqual([]);
});

/** The night of a date of which a part of the rows has another value. */
function nightWith(date: number, share: number, other: number): ColumnProfile {
  return numbersProfile(Array.from({ length: 2000 }, (_, row) => (row < share * 2000 ? other : date)));
}

test.each([
  ["zeros", all, nightWith(20_261_126, 0.45, 0)],
  ["dates of 1970", all, nightWith(20_261_126, 0.45, 19_700_101)],
  ["dates of next year beside the usual late rows", nightWithLate(30), nightWith(20_261_126, 0.4, 20_271_126)],
])("a night of which many rows have %s in place of its date is held", (_, night, now) => {
  expect(failedOf(verdictOn(now, dates.map(night)), "date")).toContainEqual({ check: "psi", level: "hold" });
});

test.each([
  ["0", 1, 0],
  ["1", 0, 1],
])("a flag whose value is %s in most rows of the second night only is held", (_, usual, other) => {
  const found = failedOf(verdictOn(nightWith(other, 0.05, usual), [nightWith(usual, 0.05, other)]), "date");
  expect(found).toContainEqual({ check: "psi", level: "hold" });
});

test("the day of the month holds no night, also with late rows and when the month turns", () => {
  const late = nightWithLate(30);
  const earlier = Array.from({ length: 7 }, (_, ago) => 30 - ago).map(late);
  expect(failedOf(verdictOn(late(1), earlier), "date")).toEqual([]);
  expect(failedOf(verdictOn(late(2), [late(1), ...earlier]), "date")).toEqual([]);
});

test("the last working day as a feature holds no night, although it stays the same on a weekend", () => {
  const earlier = [27, 27, 27, 26, 25, 24, 23, 20].map((day) => nightWithLate(30)(day));
  expect(failedOf(verdictOn(nightWithLate(30)(30), earlier), "date")).toEqual([]);
});
