import { describe, expect, test } from "vitest";
import { judge } from "#src/checks/verdicts/judge.js";
import { defaultChecks } from "#src/checks/verdicts/run-profile.js";
import type { CheckResult } from "#src/checks/verdicts/verdict.js";
import {
  type Columns,
  nightsBefore,
  normals,
  numbersProfile,
  runProfile,
  textsProfile,
  vectorsProfile,
} from "../../support/run-profiles.js";
import { resultLines } from "#src/publish/verdict-text.js";
import { only, storedVerdict } from "../../support/verdicts.js";

const withRows = (rows: number, before: (nightsAgo: number) => number, nights = 28): CheckResult => {
  const baseline = nightsBefore(nights, (nightsAgo) => ({ rows: before(nightsAgo) }));
  return only(judge({ run: runProfile({ rows }), baseline }, defaultChecks), "rows");
};

const withLimit = (rows: number, min: number): CheckResult =>
  only(
    judge(
      { run: runProfile({ rows }), baseline: nightsBefore(28, () => ({ rows: 1000 })) },
      { ...defaultChecks, rows: { ...defaultChecks.rows, min } },
    ),
    "rows",
  );

const byWeekday = (nightsAgo: number): number => (nightsAgo % 7 === 0 ? 300 : 1000);

/** A number of rows that grows by 5.4 % in three weeks, and one that grows by 11 %. */
const slowly = (nightsAgo: number): number => Math.round(10_000 * 1.0025 ** (28 - nightsAgo));
const fast = (nightsAgo: number): number => Math.round(10_000 * 1.005 ** (28 - nightsAgo));

const rise = (nightsAgo: number): number => (nightsAgo > 22 ? 1000 : 1100);
const closed = (nightsAgo: number): number => (nightsAgo % 7 === 0 ? 0 : fast(nightsAgo));
const by = (share: number) => (nightsAgo: number) => 1_000_000 * (nightsAgo < 8 ? 1 + share : 1);

const lineOf = (found: CheckResult): unknown => resultLines(storedVerdict([found]), found.level)[0];

/** The texts after the dates: "2026-11-16: 300, 2026-11-23: 310" has 300 and 310. */
const afterColons = (text: unknown): string[] =>
  String(text)
    .split(", ")
    .map((part) => part.split(": ")[1] ?? "");

const oneWithFew = (nightsAgo: number): number => (nightsAgo === 3 ? 400 : 1000);

function columnsOf(rows: number): Columns {
  const values = normals(rows, { seed: rows });
  const columns = {
    score: numbersProfile(values),
    label: textsProfile({ a: rows, b: rows }),
    list: vectorsProfile(values.map((one) => [one])),
  };
  return { outputs: columns, features: columns };
}

describe("rows", () => {
  test("rows after nights without rows hold the run, and no rows pass", () => {
    expect(withRows(500, () => 0)).toMatchObject({ level: "hold", measured: "infinitely many", limit: 3 });
    expect(withRows(0, () => 0)).toMatchObject({ level: "pass", measured: 1 });
  });

  test("the result of the check of rows lists the nights that they are compared with", () => {
    expect(withRows(500, byWeekday).numbers["nights"]).toBe(
      "2026-10-26: 300, 2026-11-02: 300, 2026-11-09: 300, 2026-11-16: 300",
    );
  });

  test.each<[CheckResult, string]>([
    [
      withRows(1000, (ago) => 7000 + ago, 8),
      "1,000 rows, 14.3% of 7,001, the fewest of the last 8 runs (rows.min: 70%)",
    ],
    [
      withRows(30_000, (ago) => 7000 + ago, 8),
      "30,000 rows, 428% of 7,008, the most of the last 8 runs (rows.max: 300%)",
    ],
    [withRows(100, () => 700, 1), "100 rows, 14.3% of 700, the last run (rows.min: 70%)"],
    [withRows(100, byWeekday, 21), "100 rows, 33.3% of 300, the median of 3 Mondays (rows.min: 70%)"],
    [withRows(100, byWeekday), "100 rows, 33.3% of 300, the median of 4 Mondays (rows.min: 70%)"],
    [withRows(230, byWeekday), "230 rows, 76.7% of 300, the median of 4 Mondays (a warning below 80%; rows.min: 70%)"],
    [withRows(1000, byWeekday), "1,000 rows, 333% of 300, the median of 4 Mondays (rows.max: 300%)"],
    [withRows(100, (ago) => 1000 + ago), "100 rows, 9.86% of 1,014, the lower median of 4 Mondays (rows.min: 70%)"],
    [withRows(5, () => 0), "5 rows, the median of 4 Mondays had 0 (rows.max: 300%)"],
    [withLimit(500, 0.6), "500 rows, 50% of 1,000, the median of 4 Mondays (rows.min: 60%)"],
  ])(
    "the finding about rows names the nights that they are compared with, and the limit as the spec has it: %#",
    (result, line) => {
      expect(resultLines(storedVerdict([result]), result.level)).toEqual([
        expect.stringMatching(`^${line.replaceAll(/[().]/g, "\\$&")}`),
      ]);
    },
  );

  test("the rows of half a table hold the run", () => {
    expect(withRows(500, () => 1000)).toMatchObject({ level: "hold", measured: 0.5, limit: 0.7 });
  });

  test("rows below four fifths of the usual number warn", () => {
    expect(withRows(799, () => 1000)).toMatchObject({ level: "warn", measured: 0.799, limit: 0.8 });
    expect(withRows(800, () => 1000)).toMatchObject({ level: "pass", limit: 3 });
    expect(withRows(699, () => 1000)).toMatchObject({ level: "hold", limit: 0.7 });
    expect(withRows(700, () => 1000).level).toBe("warn");
  });

  test("rows warn a third of the way from the limit in the spec to the usual number, and never if the limit is 0", () => {
    expect(withLimit(699, 0.55)).toMatchObject({ level: "warn", limit: 0.7 });
    expect(withLimit(700, 0.55).level).toBe("pass");
    expect(withLimit(1000, 1).level).toBe("pass");
    expect(withLimit(999, 1)).toMatchObject({ level: "hold", limit: 1 });
    expect(withLimit(0, 0).level).toBe("pass");
  });

  test("rows are compared with those of the same weekday", () => {
    expect(withRows(300, byWeekday).level).toBe("pass");
    expect(withRows(1000, byWeekday)).toMatchObject({ level: "hold", measured: 1000 / 300, limit: 3 });
  });

  test("the rows of one unusual earlier week do not matter", () => {
    expect(withRows(1000, (nightsAgo) => (nightsAgo === 7 ? 3000 : 1000)).level).toBe("pass");
    expect(withRows(1000, (nightsAgo) => (nightsAgo === 14 ? 300 : 1000)).level).toBe("pass");
    expect(withRows(1000, (nightsAgo) => (nightsAgo === 7 ? 2000 : 1000), 14).level).toBe("pass");
    expect(withRows(1000, (nightsAgo) => (nightsAgo === 7 ? 300 : 1000), 14).level).toBe("pass");
  });

  test("rows are compared with the fewest and the most of the last 8 runs while too few runs have the same weekday", () => {
    expect(withRows(330, oneWithFew, 6)).toMatchObject({ level: "pass", numbers: { least: 400, most: 1000 } });
    expect(withRows(290, oneWithFew, 9).level).toBe("warn");
    expect(withRows(270, oneWithFew, 9).level).toBe("hold");
  });

  test("too few rows for the only earlier run of their weekday warn, although another of the last 8 runs had as few", () => {
    const withFew = (rows: number, nights = 9): CheckResult => withRows(rows, oneWithFew, nights);
    const [line] = resultLines(storedVerdict([withFew(690)]), "warn");
    expect(line).toBe(
      "690 rows, 69% of 1,000, those of 2026-11-16, the only Monday of the last 4 weeks (rows.min: 70%); only a warning: a hold needs 2 runs of the same weekday in the last 4 weeks",
    );
    expect(withFew(690).formula).toMatch(/only run of the same weekday.*a warning below 0\.7$/);
    expect(withFew(700)).toMatchObject({ level: "pass", numbers: { least: 400 } });
    expect(withFew(690, 6).level).toBe("pass");
    expect(withFew(690, 14)).toMatchObject({ level: "hold", numbers: { compared: "weekday" } });
    expect(withFew(270)).toMatchObject({ level: "hold", numbers: { compared: "last runs" } });
    expect(withRows(3500, oneWithFew, 9)).toMatchObject({ level: "hold", numbers: { compared: "last runs" } });
  });
});

describe("rows of a job that grows", () => {
  test("the lower usual number of rows is the lower median of the weekday times the growth in three weeks, up to 7 %", () => {
    expect(fast(21)).toBe(10_355);
    expect(withRows(7757, fast)).toMatchObject({
      level: "warn",
      numbers: { least: 10_355 * 1.07, lower_median: 10_355, most: 10_723, growth: 1.07 },
    });
    expect(withRows(7755, fast)).toMatchObject({ level: "hold", measured: 7755 / (10_355 * 1.07), limit: 0.7 });
    expect(withRows(8863, fast).level).toBe("warn");
    expect(withRows(8865, fast)).toMatchObject({ level: "pass", measured: 8865 / 10_723 });
    expect(withRows(32_169, fast).level).toBe("pass");
    expect(withRows(32_170, fast)).toMatchObject({ level: "hold", measured: 32_170 / 10_723, limit: 3 });
  });

  test("the usual number is not above the most rows of these nights, so that a table that never shrinks is not held", () => {
    expect(slowly(7)).toBe(10_538);
    const { numbers } = withRows(10_538, slowly);
    expect(numbers).toMatchObject({ least: 10_538, lower_median: 10_176, growth: expect.closeTo(1.0538, 3) });
    const never = { ...defaultChecks, rows: { min: 1, max: 3 } };
    for (const rows of [(ago: number): number => 10_000 - 10 * ago, rise]) {
      const baseline = nightsBefore(28, (ago) => ({ rows: rows(ago) }));
      expect(only(judge({ run: runProfile({ rows: rows(0) }), baseline }, never), "rows").level).toBe("pass");
    }
  });

  test("the finding has the median and the growth, and not of a run with too many rows", () => {
    expect(lineOf(withRows(5100, fast))).toBe(
      "5,100 rows, 46% of 11,080, the lower median of 4 Mondays (10,355) plus 7% growth (rows.min: 70%)",
    );
    expect(lineOf(withRows(40_000, fast))).toBe(
      "40,000 rows, 373% of 10,723, the upper median of 4 Mondays (rows.max: 300%)",
    );
    const few = (ago: number): number => Math.round(fast(ago) / 1000);
    expect(lineOf(withRows(6, few))).toBe(
      "6 rows, 56.1% of 10.7, the lower median of 4 Mondays (10) plus 7% growth (rows.min: 70%)",
    );
  });

  test("the usual number of rows can be derived from the numbers of the result", () => {
    for (const rows of [slowly, fast, byWeekday]) {
      const { numbers, measured, formula } = withRows(500, rows);
      const sorted = afterColons(numbers["nights"])
        .map(Number)
        .toSorted((one, other) => one - other);
      const quotients = afterColons(numbers["growth_nights"] ?? "none: 1/1").map((text) => {
        const [now, before] = text.split("/").map(Number) as [number, number];
        return now / before;
      });
      const third = quotients.toSorted((one, other) => one - other)[Math.floor((quotients.length - 1) / 3)];
      const growth = Math.min(third ?? 1, 1.07);
      const lower = sorted[1] as number;
      expect(numbers["growth"] ?? 1).toBe(growth);
      const least = Math.min(lower * growth, sorted.at(-1) as number);
      expect([numbers["least"], measured]).toEqual([least, 500 / (rows === byWeekday ? (sorted[2] as number) : least)]);
      expect(formula.includes("growth_nights")).toBe(growth > 1);
    }
  });

  test("the median is not multiplied if it is 0, or if the job grows by less than 1 %", () => {
    expect(withRows(5, closed).numbers["growth"]).toBeUndefined();
    expect(withRows(5, closed).formula).not.toContain("growth");
    expect(lineOf(withRows(5, closed))).toBe("5 rows, the median of 4 Mondays had 0 (rows.max: 300%)");
    expect(withRows(1_000_000, by(0.0099)).numbers["growth"]).toBeUndefined();
    const grown = withRows(500_000, by(0.0101));
    expect(grown.numbers["growth"]).toBeCloseTo(1.0101);
    expect(lineOf(grown)).toContain("of 1,010,100, the median of 4 Mondays (1,000,000) plus 1.01% growth");
  });

  test.each([
    [[1.05, 1.05, 1.05, 1.05, 1.05, 1, 1], 1.05],
    [[1, 1.04, 1.06, 1.04, 1.03, 1.05, 0.9], 1.03],
    [[1.05, 1.05, 1.05, 1.05, 1, 1, 1], undefined],
    [[2, 2, 2, 1, 1, 1, 1], undefined],
    [[0.5, 0.5, 1, 1, 1, 1, 1], undefined],
  ])("growth is what five of the last seven nights have at least, from three weeks before: %j", (factors, growth) => {
    const { numbers } = withRows(1000, (ago) => 1000 * (factors[ago - 1] ?? (ago % 7 === 0 && ago < 21 ? 1.1 : 1)));
    expect(numbers["growth"]).toBe(growth);
  });

  test.each([
    [6, 1.04],
    [5, 1.04],
    [4, undefined],
  ])("of %i nights in a week, the growth is the second smallest, if they are five at least", (count, growth) => {
    const factors = [1.06, 1.02, 1.04, 1.05, 1.06, 1.06].slice(0, count);
    const week = factors.flatMap((factor, index) => [
      { ago: index + 1, rows: 1000 * factor },
      { ago: index + 22, rows: 1000 },
    ]);
    const mondays = [14, 21, 28].map((ago) => ({ ago, rows: ago === 14 ? 2000 : 1000 }));
    const baseline = [...week, ...mondays]
      .toSorted((one, other) => other.ago - one.ago)
      .map(({ ago, rows }) => runProfile({ rows }, 23 - ago));
    const { numbers } = only(judge({ run: runProfile({ rows: 1000 }), baseline }, defaultChecks), "rows");
    expect(numbers["growth"]).toBe(growth);
  });

  test("growth is not taken from nights without rows, nor from less than four weeks", () => {
    expect(withRows(1000, (ago) => (ago > 21 ? 0 : 1000)).numbers["growth"]).toBeUndefined();
    expect(withRows(10_000, fast, 25).numbers["growth"]).toBeUndefined();
    expect(withRows(10_000, fast, 26).numbers["growth"]).toBe(1.07);
  });
});

test("a verdict is the same after JSON, also where nothing can be divided by", () => {
  for (const [rows, before] of [
    [0, 0],
    [0, 50],
    [50, 0],
    [50, 50],
  ] as const) {
    for (const nights of [1, 8, 28]) {
      const baseline = nightsBefore(nights, (nightsAgo) => ({
        ...columnsOf(nightsAgo === 1 ? 50 : before),
        rows: before,
      }));
      const first = runProfile({ ...columnsOf(before), rows: before }, 1);
      const verdict = judge({ run: runProfile({ ...columnsOf(rows), rows }), baseline, first }, defaultChecks);
      expect(JSON.parse(JSON.stringify(verdict))).toEqual(verdict);
    }
  }
});
