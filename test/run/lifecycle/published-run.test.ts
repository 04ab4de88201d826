import { describe, expect, test } from "vitest";
import type { RunProfile } from "#src/checks/profile/run-profile.js";
import { isRunProfile, parseRunProfile, runProfileText } from "#src/run/lifecycle/profile-text.js";
import {
  chooseBaseline,
  type DatedRun,
  leftOutText,
  normalAndOthers,
  olderModelText,
  type PublishedRun,
  readersView,
  runsOfSeries,
  type Series,
} from "#src/run/lifecycle/published-run.js";
import { isCalendarDate } from "#src/run/plan/identity.js";
import type { LeftOutRun, Plan } from "#src/run/plan/plan.js";

const series: Series = {
  job: "daily",
  params: { region: "EU", ds: "2026-11-23" },
  dateParam: "ds",
  date: "2026-11-23",
};

const published = (date: string, modelSha256 = "m"): PublishedRun => ({
  runId: `run-${date}`,
  job: "daily",
  params: { region: "EU", ds: date },
  profile: { sha256: "0".repeat(64), place: date },
  modelSha256,
  isNormal: true,
  decidedBy: () => Promise.resolve("ana"),
  seconds: () => Promise.resolve(null),
});

const nightsOf = (runs: readonly PublishedRun[]): DatedRun[] => normalAndOthers(runs, series);

const on = (why: LeftOutRun["why"], ...days: number[]): LeftOutRun[] =>
  days.map((day) => ({ runId: `run-${day}`, date: `2026-11-${day}`, why }));

const nightsFrom = (date: string, count: number): string[] =>
  Array.from({ length: count }, (_, day) => new Date(Date.parse(date) + day * 86_400_000).toISOString().slice(0, 10));

test.each([
  ["an earlier run of the same params", "daily", { region: "EU", ds: "2026-11-22" }, ["2026-11-22"]],
  ["a run of the same date", "daily", { region: "EU", ds: "2026-11-23" }, undefined],
  ["a later run, however long ago it was scored", "daily", { region: "EU", ds: "2026-12-01" }, undefined],
  ["a run of another region", "daily", { region: "US", ds: "2026-11-22" }, undefined],
  ["a run of another job", "hourly", { region: "EU", ds: "2026-11-22" }, undefined],
  ["a run without a date", "daily", { region: "EU", ds: "latest" }, undefined],
])("a series takes or leaves %s by its params", (_, job, params, date) => {
  expect(runsOfSeries([{ ...published(""), job, params }], series).map((run) => run.date)).toEqual(date ?? []);
});

test.each(["2026-02-30", "20261123", "2026-11-23T00:00", ""])("a series does not treat %j as a date", (text) => {
  expect(isCalendarDate(text)).toBe(false);
});

const asked = { modelSha256: "m" };

/** A run a night from 10 November on, with these models. */
const nights = (...models: string[]): PublishedRun[] =>
  models.map((model, index) => published(`2026-11-${10 + index}`, model));

const withLeftOut = (leftOut: number, ...models: string[]): PublishedRun[] =>
  nights(...models).map((run, index) => (index === leftOut ? Object.assign(run, { isNormal: false }) : run));

const olderThan = async (found: readonly PublishedRun[]): Promise<unknown> =>
  (await chooseBaseline(nightsOf(found), asked)).olderModel;

describe("the baseline of a run", () => {
  test("the baseline of a run is the last 63 runs, the latest last", async () => {
    const dates = nightsFrom("2026-09-01", 83);
    const { baseline } = await chooseBaseline(nightsOf(dates.toReversed().map((date) => published(date))), asked);
    expect(baseline.map(({ date }) => date)).toEqual(nightsFrom("2026-09-21", 63));
  });

  test("of several runs of one date, the last that is found is in the baseline, and one that is left out does not count", async () => {
    const at = (date: string, hour: string): PublishedRun => ({ ...published(date), runId: hour });
    const found = [at("2026-11-21", "c"), at("2026-11-20", "a"), at("2026-11-20", "b")];
    const left = { ...at("2026-11-20", "z"), isNormal: false };
    const { baseline } = await chooseBaseline(nightsOf([...found, left]), asked);
    expect(baseline.map(({ runId }) => runId)).toEqual(["b", "c"]);
  });

  test("the baseline of a run leaves out runs that are marked, and names those among the last eight", async () => {
    const found = nightsFrom("2026-11-01", 20).map((date) => published(date));
    const asked8: string[] = [];
    const marked = found.map((run, day) => ({
      ...run,
      isNormal: ![3, 15, 18].includes(day),
      decidedBy: () => Promise.resolve(asked8.push(run.runId) && day === 18 ? "checks" : "ana"),
    }));
    const { baseline, leftOut } = await chooseBaseline(nightsOf(marked), asked);
    expect(baseline.map(({ date }) => date)).toEqual(
      found.map(({ params }) => params?.["ds"]).filter((_, day) => ![3, 15, 18].includes(day)),
    );
    expect(leftOut).toEqual([
      { runId: "run-2026-11-16", date: "2026-11-16", why: "approved" },
      { runId: "run-2026-11-19", date: "2026-11-19", why: "expected" },
    ]);
    expect(asked8).toEqual(["run-2026-11-16", "run-2026-11-19"]); // of no other run is the decision read
    expect(await chooseBaseline(nightsOf(found), asked)).not.toHaveProperty("leftOut");
  });

  test("the runs that a run is not compared with are in one line, with their reasons", () => {
    expect(leftOutText({ leftOut: [] })).toBeUndefined();
    expect(leftOutText({ leftOut: on("approved", 20, 21, 22) })).toBe(
      "not compared with 2026-11-20, 2026-11-21 and 2026-11-22: approved as not normal",
    );
    expect(leftOutText({ leftOut: [...on("expected", 15), ...on("approved", 16, 17, 18, 19)] })).toBe(
      "not compared with 4 runs from 2026-11-16 to 2026-11-19: approved as not normal; nor with 2026-11-15: expected to differ",
    );
  });

  test("a run whose model is not that of the last run, but that of an earlier one, names both runs", async () => {
    const back = { usedOn: "2026-11-11", last: { date: "2026-11-13", modelSha256: "b" } };
    expect(await olderThan(nights("m", "m", "b", "b").toReversed())).toEqual(back);
    for (const others of [[], ["m"], ["b"], ["b", "m"], ["b", "c"]]) {
      expect(await olderThan(nights(...others)), others.join()).toBeUndefined();
    }
    expect(await olderThan(withLeftOut(1, "b", "m", "b", "b"))).toEqual(back);
    // A run that is left out is the last run, too.
    expect(await olderThan(withLeftOut(1, "m", "b"))).toEqual({
      usedOn: expect.any(String),
      last: expect.objectContaining({ modelSha256: "b" }),
    });
    expect(await olderThan(withLeftOut(2, "m", "b", "c"))).toMatchObject({ last: { modelSha256: "c" } });
    expect(await olderThan(withLeftOut(2, "m", "b", "m"))).toBeUndefined(); // said when that run was planned
    const olderModel = { ...back, last: { ...back.last, modelSha256: "e5b6286debb10000" } };
    const model = { uri: "models/renewal.onnx", sha256: "b6aa958648180000" };
    expect(olderModelText(model, { olderModel })).toBe(
      "the model is not that of the last run: models/renewal.onnx has sha256 b6aa95864818…, that run (2026-11-13) had e5b6286debb1…; it was last used on 2026-11-11",
    );
    expect(olderModelText(model, {})).toBeUndefined();
  });
});

describe("whose rows readers have", () => {
  const plan = (mode: string | undefined, base: string): Plan =>
    ({ runId: base, job: "daily", params: { region: "EU", ds: "2026-11-23" }, target: { kind: "any", mode } }) as never;
  const runs: PublishedRun[] = [
    { ...published("2026-11-20"), runId: "daily-000000000001" },
    { ...published("2026-11-21"), runId: "daily-000000000002-r2", isEmpty: true },
    { ...published("2026-11-22"), runId: "daily-000000000003", params: { region: "US", ds: "2026-11-22" } },
  ];

  test.each([
    ["places of their own", undefined, { run: "daily-000000000002-r2" }],
    ["a table that is replaced", "replace", { run: "daily-000000000003" }],
    ["a table that keeps rows", "append", { run: "daily-000000000002-r2" }],
    ["a table that keeps other keys", "upsert", { run: "daily-000000000002-r2" }],
  ])("in %s", (_, mode, { run }) => {
    const view = readersView(runs, plan(mode, "daily-000000000002"));
    expect(view.run?.runId).toBe(run);
    expect(view.kept === undefined).toBe(mode === undefined || mode === "replace");
    expect(view.kept?.own).toBeUndefined(); // it has no rows
    expect(readersView(runs, plan("append", "daily-000000000001")).kept?.own?.runId).toBe("daily-000000000001");
    expect(readersView(runs, plan(undefined, "daily-000000000009")).run).toBeUndefined();
  });
});

const profile: RunProfile = {
  runId: "daily-0123456789ab",
  date: "2026-11-20",
  modelSha256: "a".repeat(64),
  rows: 3,
  rejected: 0,
  outputs: new Map([["id", { kind: "rows", type: "int64", rows: 3, nulls: 0 }]]),
  carried: new Map([["ds", { kind: "rows", type: "date", rows: 3, nulls: 0 }]]),
  features: new Map([["weight", { kind: "rows", type: "float32", rows: 3, nulls: 1 }]]),
  slices: new Map(),
  repeated: 0.25,
  isApproved: true,
  model: { uri: "models/a.onnx", version: "7" },
};

test("the text of a run's profile is recognised and read again, and other texts are not", () => {
  const text = runProfileText(profile);
  expect(isRunProfile(text)).toBe(true);
  expect(parseRunProfile(text)).toEqual(profile);
  for (const other of ["", "{}", text.replace('"version":1', '"version":2'), text.slice(1)]) {
    expect(isRunProfile(other)).toBe(false);
    expect(parseRunProfile(other)).toBeUndefined();
  }
});

test("a profile whose columns are not columns is not one", () => {
  const text = runProfileText(profile);
  for (const columns of ['"outputs":{}', '"outputs":[["id"]]', '"outputs":[[1,{}]]']) {
    expect(parseRunProfile(text.replace(/"outputs":\[.*\],"features"/, `${columns},"features"`))).toBeUndefined();
  }
});
