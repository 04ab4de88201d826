import { describe, expect, test } from "vitest";
import type { ColumnProfile } from "#src/checks/profiles/column-profile.js";
import { hideRareValues } from "#src/checks/profiles/rare-values.js";
import { hashBins, hashOfName } from "#src/checks/profiles/value-names.js";
import { judge } from "#src/checks/verdicts/judge.js";
import { defaultChecks } from "#src/checks/verdicts/run-profile.js";
import { checkUnseen } from "#src/checks/verdicts/value-checks.js";
import type { CheckResult } from "#src/checks/verdicts/verdict.js";
import { nightsBefore, runProfile, textsProfile } from "../../support/run-profiles.js";

type Counts = Readonly<Record<string, number>>;

const features = (counts: Counts): Parameters<typeof runProfile>[0] => ({
  features: Object.fromEntries(hideRareValues(new Map([["city", textsProfile(counts)]]))),
});

/** What `unseen_value` says of a feature, after runs with these values, the latest last. */
function unseen(now: Counts, before: readonly Counts[]): CheckResult[] {
  const baseline = nightsBefore(before.length, (ago) => features(before.at(-ago) as Counts));
  const { results } = judge({ run: runProfile(features(now)), baseline }, defaultChecks);
  return results.filter(({ check }) => check === "unseen_value");
}

/** Texts, and rows with NULL. */
const withNulls = (counts: Counts, nulls: number): ColumnProfile => {
  const texts = textsProfile(counts);
  return { ...texts, rows: texts.rows + nulls, nulls };
};

/** What the check says of rows with a category, after a run or a file in which all rows are NULL. */
const unseenAfterNulls = (rows: number, file?: string): CheckResult[] =>
  checkUnseen(
    {
      column: "city",
      now: withNulls({ Cork: rows }, 150 - rows),
      earlier: [{ runId: "daily-1", file, profile: withNulls({}, 2000) }],
    },
    false,
  );

const nights = (counts: Counts, count = 8): Counts[] => Array.from({ length: count }, () => counts);
const usual: Counts = { Rome: 90, Oslo: 50, Bern: 10 };
const withCork = (rows: number, all = 150): Counts => ({ Rome: all - 60 - rows, Oslo: 50, Bern: 10, Cork: rows });

describe("a new category of a feature with few rows", () => {
  test("three rows warn if each value of the earlier runs occurs in several of them", () => {
    expect(unseen(withCork(2), nights(usual))).toEqual([]);
    const [result] = unseen(withCork(3), nights(usual));
    expect(result).toMatchObject({
      column: "city",
      level: "warn",
      measured: 0.02,
      limit: 0.01,
      numbers: { value: "of fewer than 20 rows", rows_of_value: 3, rows: 150, rows_before: 1200 },
    });
    expect(result?.formula).toContain("of at least 3 rows (each value before occurs in several runs)");
  });

  test("it takes more than a hundredth of the rows", () => {
    expect(unseen(withCork(3, 300), nights({ ...usual, Rome: 240 }))).toEqual([]);
    expect(unseen(withCork(4, 300), nights({ ...usual, Rome: 240 }))).toHaveLength(1);
  });

  test("it takes five rows and two hundredths if a value of the earlier runs occurs in only one of them", () => {
    const before = [...nights(usual, 7), { ...usual, Nice: 2 }];
    expect(unseen(withCork(4), before)).toEqual([]);
    expect(unseen(withCork(4), [...nights(usual, 7), { ...usual, Nice: 25 }])).toEqual([]);
    const [result] = unseen(withCork(5), before);
    expect(result).toMatchObject({ level: "warn", limit: 0.02 });
    expect(result?.formula).toContain("of at least 5 rows, where");
    expect(unseen(withCork(6, 300), before)).toEqual([]);
    expect(unseen(withCork(3), [...nights(usual, 6), { ...usual, Nice: 2 }, { ...usual, Nice: 1 }])).toHaveLength(1);
  });

  test("it takes five rows if an earlier run has more values than are counted", () => {
    const many = Object.fromEntries(
      Array.from({ length: 300 }, (_, index) => [`city ${index}`, index === 0 ? 300 : 1]),
    );
    const bins = new Set(Object.keys(many).map((name) => hashOfName(name) % hashBins));
    const name =
      Array.from({ length: 1000 }, (_, index) => `town ${index}`).find(
        (one) => !bins.has(hashOfName(one) % hashBins),
      ) ?? expect.fail();
    const now = (rows: number): Counts => ({ "city 0": 150 - rows, [name]: rows });
    expect(unseen(now(4), nights(many))).toEqual([]);
    expect(unseen(now(5), nights(many))).toHaveLength(1);
  });

  test("a value that has its name in some runs and none in others recurs", () => {
    const before = [...nights({ Rome: 130, Bern: 20 }, 4), ...nights({ Rome: 131, Bern: 19 }, 4)];
    expect(unseen({ Rome: 127, Bern: 20, Cork: 3 }, before)).toHaveLength(1);
  });

  test("it takes five rows if the earlier runs have no values, as of a column that is filled for the first time", () => {
    for (const file of [undefined, "training.json"]) {
      expect(unseenAfterNulls(4, file)).toEqual([]);
      expect(unseenAfterNulls(5, file)).toMatchObject([{ limit: 0.02 }]);
    }
  });
});
