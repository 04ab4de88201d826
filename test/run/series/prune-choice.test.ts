import { describe, expect, test } from "vitest";
import { choosePrevious, choosePruned, groupRuns, pinnedRuns, type Retention } from "#src/run/series/prune-choice.js";
import type { Plan, RunId } from "#src/run/plan/plan.js";
import type { RecordedRun, RunStatus } from "#src/run/lifecycle/recorded-run.js";
import { planOf } from "../../support/plans.js";

const idOf = (day: number): string => `job-${String(day).padStart(12, "0")}`;

/** The run of a day in November; `number`: which one of that day. */
function runOf(day: number, status: RunStatus, { number = 1, pins = [] as readonly number[] } = {}): RecordedRun {
  const date = `2026-11-${String(day).padStart(2, "0")}`;
  const runId = `${idOf(day)}${number === 1 ? "" : `-r${number}`}` as RunId;
  const baseline = pins.map((pin) => ({ runId: idOf(pin), date, sha256: "", place: "" }));
  const plan: Plan = { ...planOf([1], 1), runId, params: { ds: date }, dateParam: "ds", checks: { baseline } };
  const counts = { rows: 1, rejected: 0, spansCommitted: 1, at: null, seconds: null };
  const nothing = { verdict: undefined, decision: undefined, failure: undefined };
  return { runId, place: `out/dt=${date}`, status, plan, ...counts, ...nothing };
}

/** The choice for each group, the latest first: "kept", "pruned", or why it stays. */
function chosen(runs: readonly RecordedRun[], retention: Retention): Record<string, string> {
  const groups = groupRuns(runs);
  return Object.fromEntries(
    choosePruned(groups, retention, { pins: pinnedRuns(groups) }).map((choice) => [
      choice.group.latest.plan?.params["ds"]?.slice(-2) ?? "",
      choice.kind === "keep" ? "kept" : choice.kind === "prune" ? (choice.again ? "again" : "pruned") : choice.why,
    ]),
  );
}

const keep = (count: number): Retention => ({ kind: "keep", count });
const from = (day: number): Retention => ({ kind: "from", date: `2026-11-${String(day).padStart(2, "0")}` });
const published = (...days: number[]): RecordedRun[] => days.map((day) => runOf(day, "published"));

describe("which runs are pruned", () => {
  test("--keep counts published runs from the latest date on, and prunes all runs before them", () => {
    const runs = [...published(11, 13, 12, 15), runOf(14, "held"), runOf(10, "discarded")];
    expect(chosen(runs, keep(2))).toEqual({
      15: "kept",
      14: "kept",
      13: "kept",
      12: "pruned",
      11: "pruned",
      10: "pruned",
    });
  });

  test("--keep does not count a run that was rolled back, whose rows readers no longer see", () => {
    const back = { ...runOf(13, "published"), rolledBack: true };
    expect(chosen([...published(11, 12), back], keep(1))).toEqual({ 13: "kept", 12: "kept", 11: "pruned" });
    expect(chosen([...published(11, 12), back], from(20))).toEqual({
      13: "pruned",
      12: "it is the latest published run",
      11: "pruned",
    });
  });

  test("--older-than prunes runs for dates before its own, but never the latest published run", () => {
    expect(chosen(published(11, 12, 13), from(12))).toEqual({ 13: "kept", 12: "kept", 11: "pruned" });
    expect(chosen(published(11, 12), from(20))).toEqual({ 12: "it is the latest published run", 11: "pruned" });
  });

  test("old runs that an attempt or a person may continue are retained, and each says why", () => {
    const statuses = ["unfinished", "failed", "approved", "held", "superseded", "damaged"] as const;
    const runs = [...published(20), ...statuses.map((status, index) => runOf(index + 1, status))];
    expect(chosen(runs, keep(1))).toEqual({
      20: "kept",
      "01": "it is not finished",
      "02": "it is not finished",
      "03": "it is being published",
      "04": "its checks hold it",
      "05": "the run that takes its place is not planned yet",
      "06": "its plan is damaged",
    });
  });

  test("a published run whose next run is not finished is retained with it", () => {
    const runs = [...published(20, 11), runOf(11, "unfinished", { number: 2 })];
    expect(chosen(runs, keep(1))).toEqual({ 20: "kept", 11: "it is not finished" });
  });

  test("a run that an open run is compared with is retained, and one that a published run was compared with is not", () => {
    const runs = [...published(20, 11), runOf(12, "published", { pins: [10] }), runOf(10, "published")];
    const held = runOf(21, "held", { pins: [11] });
    expect(chosen([...runs, held], keep(1))).toEqual({
      21: "kept",
      20: "kept",
      12: "pruned",
      11: `the checks of run ${held.runId} compare with it`,
      10: "pruned",
    });
  });

  test("a pruned run is chosen again, to finish what a killed prune has left, and counts for nothing", () => {
    expect(chosen([...published(15, 14), runOf(13, "pruned")], keep(2))).toEqual({
      15: "kept",
      14: "kept",
      13: "again",
    });
  });

  test("runs without a date in their params are old by the time of their status", () => {
    const undated = { ...runOf(1, "discarded"), at: "2026-10-01T03:00:00.000Z" };
    const plan = { ...(undated.plan as Plan), params: {}, dateParam: null };
    expect(groupRuns([{ ...undated, plan }])).toHaveLength(1);
    const groups = groupRuns([{ ...undated, plan }]);
    expect(choosePruned(groups, from(1), { pins: new Map() }).map(({ kind }) => kind)).toEqual(["prune"]);
    expect(choosePruned(groupRuns([{ ...undated, plan, at: null }]), from(1), { pins: new Map() })[0]?.kind).toBe(
      "keep",
    );
  });
});

describe("which previous tables are dropped", () => {
  const groups = groupRuns(published(12, 13, 14));
  const tables = [13, 12].map((day) => ({ name: `before_${day}`, runId: idOf(day) as RunId, bytes: 1 }));

  test("the table itself is one of the runs to keep", () => {
    expect(choosePrevious(tables, keep(2), groups).map(({ name }) => name)).toEqual(["before_12"]);
    expect(choosePrevious(tables, keep(1), groups).map(({ name }) => name)).toEqual(["before_13", "before_12"]);
  });

  test("the table of a run that was rolled back is not one of the runs to keep", () => {
    const back = { ...runOf(14, "published"), rolledBack: true };
    const undone = { name: "undone_14", runId: idOf(14) as RunId, bytes: 1 };
    const chosenOf = (count: number): string[] =>
      choosePrevious([undone, ...tables.slice(1)], keep(count), groupRuns([...published(12, 13), back])).map(
        ({ name }) => name,
      );
    expect(chosenOf(2)).toEqual([]); // the target has the run of the 13th
    expect(chosenOf(1)).toEqual(["undone_14", "before_12"]);
  });

  test("a table with rows of a run for an old date is dropped, and one with rows that no run wrote is not", () => {
    const others = [...tables, { name: "before_all", runId: undefined, bytes: 1 }];
    expect(choosePrevious(others, from(13), groups).map(({ name }) => name)).toEqual(["before_12"]);
    expect(choosePrevious(others, keep(1), groups)).toHaveLength(2);
  });
});
