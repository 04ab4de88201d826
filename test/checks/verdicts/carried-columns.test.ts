import { expect, test } from "vitest";
import type { ColumnProfile } from "#src/checks/profiles/column-profile.js";
import { judge } from "#src/checks/verdicts/judge.js";
import { type ColumnProfiles, defaultChecks, type RunProfile } from "#src/checks/verdicts/run-profile.js";
import { nightsBefore, runProfile } from "../../support/run-profiles.js";
import { told } from "../../support/verdicts.js";

const column = (type: string, nulls = 0): ColumnProfile => ({ kind: "rows", type, rows: 1000, nulls });

function withCarried(run: RunProfile, columns: Readonly<Record<string, ColumnProfile>>): RunProfile {
  const carried: ColumnProfiles = new Map(Object.entries(columns));
  return { ...run, carried };
}

/** The results of the checks that did not pass, after ten nights with the columns `before`. */
function findings(
  before: Readonly<Record<string, ColumnProfile>>,
  now: Readonly<Record<string, ColumnProfile>>,
): string[] {
  const baseline = nightsBefore(10, () => ({})).map((run) => withCarried(run, before));
  return told(judge({ run: withCarried(runProfile({}), now), baseline }, defaultChecks));
}

test("a carried column that is of another type or all NULL holds, and one that is gone or new does not", () => {
  const before = { id: column("int64"), note: column("utf8", 300) };
  expect(findings(before, before)).toEqual([]);
  expect(findings(before, { id: column("int32"), note: column("utf8", 310) })).toEqual(["column id hold"]);
  expect(findings(before, { id: column("int64", 1000), note: column("utf8", 300) })).toEqual(["nulls id hold"]);
  const almost = { id: column("int64"), note: column("utf8", 970) };
  expect(findings(almost, { ...almost, note: column("utf8", 1000) })).toEqual(["constant note hold"]);
  expect(findings(before, { id: column("int64"), more: column("utf8") })).toEqual(["column note warn"]);
});

test("a carried column only warns while few earlier runs have its profile", () => {
  const before = { id: column("int64"), note: column("utf8") };
  const baseline = nightsBefore(10, () => ({})).map((run, index) => (index < 9 ? run : withCarried(run, before)));
  const now = { id: column("int32"), note: column("utf8", 1000) };
  const verdict = judge({ run: withCarried(runProfile({}), now), baseline }, defaultChecks);
  expect(told(verdict)).toEqual(["column id warn", "nulls note warn"]);
  expect(verdict.results.map(({ lowered }) => lowered)).toContain("only 1 of 8 runs to compare with");
});

test("a carried column of another type only warns while few earlier runs had it, or had it with the type of the last one", () => {
  const others = { other: column("int64") };
  const levels = (few: Readonly<Record<string, ColumnProfile>>, runs: number): string[] => {
    const baseline = nightsBefore(10, () => ({})).map((run, index) =>
      withCarried(run, index < 10 - runs ? few : { ...few, c: column("int32") }),
    );
    return told(judge({ run: withCarried(runProfile({}), { ...others, c: column("utf8") }), baseline }, defaultChecks));
  };
  expect([levels(others, 1), levels(others, 7), levels(others, 8)]).toEqual([
    ["column c warn"],
    ["column c warn"],
    ["column c hold"],
  ]);
  expect(levels({ ...others, c: column("utf8") }, 1)).toEqual(["column c warn"]);
});

test("a carried column is not called gone where more columns are carried than are profiled", () => {
  const many = Object.fromEntries(Array.from({ length: 128 }, (_, index) => [`c${index}`, column("int64")]));
  expect(findings({ id: column("int64") }, many)).toEqual([]);
});
