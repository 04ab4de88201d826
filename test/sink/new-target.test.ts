import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { noRows } from "#src/checks/profile/profile.js";
import { openJob } from "#src/app/job-context.js";
import type { OutputRows } from "#src/columnar/types.js";
import { parsePlan, planToText } from "#src/plan/parse-plan.js";
import { splitRunId } from "#src/plan/identity.js";
import { spanCount } from "#src/plan/spans.js";
import { runJob } from "#src/run/run.js";
import { rejectedRows, runState } from "#src/run/state.js";
import type { RunSink, Sink, StoredPlan } from "#src/sink/port.js";
import { collect } from "../support/sinks.js";
import { fixtureNamed } from "../support/world.js";
import { scratch, writeSpec } from "../support/job.js";
import { memoryLedger } from "../support/told.js";

interface MemoryRun {
  readonly text: string;
  readonly spans: Map<number, OutputRows>;
  finished: boolean;
}

/** A target of a kind of its own, with nothing that the port leaves to a sink. */
function memoryTarget(runs: MemoryRun[] = []): { sink: Sink; runs: MemoryRun[] } {
  const stored = ({ text }: MemoryRun): StoredPlan => {
    const plan = parsePlan(text);
    if (plan === undefined) {
      throw new Error("a plan of this kind of target cannot be read");
    }
    return { plan, planId: createHash("sha256").update(text).digest("hex") };
  };
  const runOf = (run: MemoryRun): RunSink => ({
    get state() {
      return { kind: run.finished ? "published" : "unfinished" } as const;
    },
    profile: () => Promise.resolve(noRows),
    countKeys: () => Promise.reject(new Error("no plan of this target has checks")),
    tidy: () => Promise.resolve(),
    judge: () => Promise.reject(new Error("no plan of this target has checks")),
    decide: () => Promise.reject(new Error("no run of this target is staged")),
    get committed() {
      return Uint8Array.from({ length: spanCount(stored(run).plan) }, (_, span) => Number(run.spans.has(span)));
    },
    get rows() {
      const output = [...run.spans.values()].reduce((sum, { rowCount }) => sum + rowCount, 0);
      return { output, rejected: 0, filtered: 0 };
    },
    committedBy: new Map(),
    async *rejects() {},
    refresh: () => Promise.resolve(),
    begin: () =>
      Promise.resolve({
        commit(span, { rows }) {
          run.spans.set(span.index, rows);
          return Promise.resolve("committed" as const);
        },
        finish() {
          run.finished = true;
          return Promise.resolve();
        },
      }),
  });
  const sink: Sink = {
    target: "memory",
    planTarget: { kind: "memory", shelf: ["a", 1] },
    newRunAdds: false,
    ledger: memoryLedger(),
    compareTarget: () => ({ lines: [], isElsewhere: false }),
    expect() {},
    rehearse: () => Promise.resolve([]),
    createInPlace: () => Promise.reject(new Error("no run of this target is staged")),
    published: () => Promise.resolve([]),
    visible: () => Promise.resolve(undefined),
    readProfile: () => Promise.reject(new Error("no run has a profile")),
    readPublished: () => Promise.reject(new Error("no rows are reused")),
    history: () => Promise.resolve([]),
    stored: () => Promise.resolve(undefined),
    prune: () => Promise.reject(new Error("there is no history")),
    find: () => Promise.resolve(runs.map(stored).at(-1)),
    unfinished: () => Promise.resolve([]),
    create(plan) {
      const run = { text: planToText(plan), spans: new Map<number, OutputRows>(), finished: false };
      runs.push(run);
      return Promise.resolve(stored(run));
    },
    open({ plan }) {
      const found = runs.find((run) => stored(run).plan.runId === plan.runId);
      return found === undefined ? Promise.reject(new Error("no such run")) : Promise.resolve(runOf(found));
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  return { sink, runs };
}

test("a target of a new kind, with none of the optional capabilities, takes a run, its status and a new run", async () => {
  const fixture = fixtureNamed("diabetes-mlp");
  const spec = await writeSpec(scratch.path, fixture, { commit_rows: 200 });
  const { sink, runs } = memoryTarget();
  const score = async (newRun: boolean): Promise<string> => {
    const attempt = { worker: { index: 0, count: 1 }, steal: false, newRun };
    await using job = await openJob(spec, { param: [] }, { attempt });
    return (await runJob({ ...job, sink })).status;
  };

  expect(await score(false)).toBe("complete");
  expect(await score(false)).toBe("already_complete");
  expect(await score(true)).toBe("complete");

  expect(runs.map(({ text }) => splitRunId(parsePlan(text)?.runId ?? ("" as never)).number)).toEqual([1, 2]);
  for (const { spans, text } of runs) {
    expect([...spans.values()].reduce((sum, { rowCount }) => sum + rowCount, 0)).toBe(fixture.rows);
    expect(parsePlan(text)?.target).toEqual({ kind: "memory", shelf: ["a", 1] });
  }
  await using job = await openJob(spec, { param: [] });
  expect(await runState({ ...job, sink })).toMatchObject({ status: "published", spansPlanned: 3, spansCommitted: 3 });
  expect(await collect(rejectedRows({ ...job, sink }))).toEqual([]);
});
