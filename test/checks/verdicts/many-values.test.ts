import { describe, expect, test } from "vitest";
import type { ColumnProfile } from "#src/checks/profiles/column-profile.js";
import { mergeProfiles } from "#src/checks/profiles/column-profile.js";
import { valueList } from "#src/checks/profiles/outside-values.js";
import { judge } from "#src/checks/verdicts/judge.js";
import { type CheckOptions, defaultChecks } from "#src/checks/verdicts/run-profile.js";
import type { Verdict } from "#src/checks/verdicts/verdict.js";
import { columnNotes } from "#src/publish/compared-text.js";
import { integersProfile, fullLimits, nightsBefore, runProfile, textsProfile } from "../../support/run-profiles.js";
import { only } from "../../support/verdicts.js";

/** Counts at most this many texts. */
const few = { ...fullLimits, values: 8 };
const names = (count: number, rows: number): Record<string, number> =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`class ${index}`, rows]));

const night = (label: ColumnProfile) => ({ outputs: { label }, rows: label.rows });

function verdictOn(now: ColumnProfile, before: (nightsAgo: number) => ColumnProfile, options = defaultChecks): Verdict {
  const baseline = nightsBefore(8, (ago) => night(before(ago)));
  return judge({ run: runProfile(night(now)), baseline }, options);
}

const inList = (values: readonly string[]): CheckOptions => ({
  ...defaultChecks,
  outputs: new Map([["label", { in: values }]]),
});

const list = (values: readonly string[], now: ColumnProfile) =>
  only(judge({ run: runProfile({ outputs: { label: now } }), baseline: [] }, inList(values)), "in", "label");

describe("a list of the values that an output may have", () => {
  test("a list of allowed values passes if no row has another value, however many values it has", () => {
    const values = Object.keys(names(300, 1));
    const now = textsProfile(names(300, 3), fullLimits, valueList(values));
    expect(now.kind === "values" && now.values.kind).toBe("many");
    expect(list(values, now)).toMatchObject({ level: "pass", measured: 0 });
  });

  test.each([
    [
      "texts",
      (values: readonly string[]) => textsProfile({ ...names(300, 3), other: 2 }, fullLimits, valueList(values)),
    ],
    [
      "integers",
      (values: readonly string[]) =>
        integersProfile(
          Array.from({ length: 300 }, (_, index) => BigInt(index)).flatMap((id) => [id, 4_000_000_000_000_000_000n]),
          fullLimits,
          valueList(values),
        ),
    ],
  ])("a list of allowed values holds a run with many %s of which one is not in the list, and names it", (kind, of) => {
    const values = kind === "texts" ? Object.keys(names(300, 1)) : Array.from({ length: 300 }, (_, id) => String(id));
    const found = list(values, of(values));
    const numbers = kind === "texts" ? { other: 2 } : { "4000000000000000000": 300 };
    expect(found).toMatchObject({ level: "hold", measured: 1, numbers });
  });

  test("a list of allowed values names the first of many values that are not in it", () => {
    const found = list(["class 1"], textsProfile(names(300, 3), fullLimits, valueList(["class 1"])));
    expect(found).toMatchObject({ level: "hold", measured: expect.stringMatching(/^at least \d+$/) });
    expect(Object.entries(found.numbers).slice(0, 2)).toEqual([
      ["class 0", 3],
      ["class 10", 3],
    ]);
  });

  test("a list of allowed values is compared with values of more than 64 bytes", () => {
    const long = "é".repeat(60);
    expect(list([long], textsProfile({ [long]: 3 }))).toMatchObject({ level: "pass" });
    expect(list([`${long}e`], textsProfile({ [long]: 3 }))).toMatchObject({ level: "hold", measured: 1 });
  });

  test("a list of allowed values holds a run whose values are not known, because attempts had different lists", () => {
    const values = Object.keys(names(300, 1));
    const spans = [values, ["a"]].map((of) => textsProfile(names(300, 3), fullLimits, valueList(of)));
    const now = spans.reduce((one, other) => mergeProfiles(one, other, fullLimits));
    expect(list(values, now)).toMatchObject({ level: "hold", measured: "too many values" });
  });
});

describe("a column with more values than are counted", () => {
  const many = textsProfile(names(30, 40), few);

  test("a label with more values than are counted is noted once, with the checks that do not compare it", () => {
    const verdict = verdictOn(many, () => many);
    expect(verdict.uncounted).toEqual([{ column: "label", checks: ["class", "unseen_value"], run: "this" }]);
    expect(columnNotes(verdict)).toEqual([
      "label has more different values than are counted one by one, so `class` and `unseen_value` do not compare them",
    ]);
  });

  test.each([
    ["texts that are all different", textsProfile(names(1000, 1), few)],
    ["ids", integersProfile(Array.from({ length: 1000 }, (_, id) => BigInt(id)))],
    ["hashes", integersProfile(Array.from({ length: 1000 }, (_, id) => BigInt(id) * 0x1234567890abcdn))],
  ])("a column with more values than are counted is not noted if it has %s", (_, now) => {
    expect(verdictOn(now, () => now).uncounted).toBeUndefined();
  });

  test("a column of integers with more values than are counted is noted if each value has many rows", () => {
    const now = integersProfile(
      Array.from({ length: 600 }, (_, row) => BigInt(row % 30)),
      few,
    );
    expect(verdictOn(now, () => now).uncounted).toHaveLength(1);
  });

  test("a new value is found although earlier runs had more values than are counted, if none of them can have had it", () => {
    const label = names(30, 40);
    const now = textsProfile({ ...label, "class new": 60 });
    const verdict = verdictOn(now, () => many);
    expect(only(verdict, "unseen_value", "label")).toMatchObject({
      level: "hold",
      numbers: { value: "class new", rows_of_value: 60 },
    });
    expect(verdict.uncounted).toEqual([{ column: "label", checks: ["class"], run: "earlier" }]);
    expect(verdictOn(textsProfile(label), () => many).results.filter(({ level }) => level !== "pass")).toEqual([]);
  });

  test("a class that is gone warns if only some earlier runs have values that are counted", () => {
    const counted = textsProfile(names(30, 40));
    const now = textsProfile({ ...names(30, 40), "class 7": 1 });
    const verdict = verdictOn(now, (ago) => (ago > 2 ? many : counted));
    expect(verdict.results.filter(({ check, level }) => check === "class" && level !== "pass")).toMatchObject([
      { level: "warn", numbers: { class: "class 7" }, lowered: "the values of only 2 of 8 earlier runs were counted" },
    ]);
    expect(verdict.uncounted).toBeUndefined();
  });
});

const ids = (...of: readonly bigint[]): bigint[] => of.flatMap((id) => Array.from({ length: 100 }, () => id));

const rangeOf = (range: readonly [number, number], now: ColumnProfile) =>
  only(
    judge(
      { run: runProfile({ outputs: { label: now } }), baseline: [] },
      { ...defaultChecks, outputs: new Map([["label", { range }]]) },
    ),
    "range",
    "label",
  );

describe("integers that float64 does not tell apart", () => {
  const limit = 2n ** 53n;

  test("integers that float64 cannot distinguish are compared with a range exactly", () => {
    const now = integersProfile(ids(limit, limit + 1n));
    expect(rangeOf([2 ** 53, 2 ** 53], now)).toMatchObject({ level: "hold", measured: "9007199254740993" });
    expect(rangeOf([2 ** 53, 2 ** 53 + 2], now)).toMatchObject({ level: "pass" });
  });

  test("integers that float64 cannot distinguish are separate classes, and not a constant", () => {
    const two = integersProfile(ids(limit, limit + 1n));
    const verdict = verdictOn(integersProfile(ids(limit, limit)), () => two);
    expect(only(verdict, "constant", "label")).toMatchObject({ level: "hold" });
    const gone = verdict.results.filter(({ check, level }) => check === "class" && level === "hold");
    expect(gone).toMatchObject([{ numbers: { class: "9007199254740993", rows_of_class: 0 } }]);
  });
});
