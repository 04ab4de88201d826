import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { assertNever } from "#src/base/errors.js";
import {
  approveStep,
  byChecks,
  type Decision,
  discardStep,
  eraseStep,
  type LatestRun,
  requireApproved,
  type RunState,
  runStep,
  type RunVerdict,
  stateOf,
  type StoredFacts,
} from "#src/run/lifecycle/lifecycle.js";
import { parseNotes, withBegun, withFailure } from "#src/run/lifecycle/recorded-run.js";
import type { RunId } from "#src/run/plan/plan.js";
import { torture } from "../../support/torture.js";

type Outcome = "publish" | "hold";

const verdict = (outcome: Outcome): RunVerdict => ({
  verdict: { outcome, runId: "r", date: "", baseline: [], known: 0, modelChanged: false, results: [], growing: [] },
  dates: {},
  thresholds: {},
  writer: "w",
  at: "",
});
const decision = (kind: Decision["kind"], by = "ann"): Decision => ({
  kind,
  by,
  at: "",
  reason: null,
  asBaseline: false,
});

const nothing: StoredFacts = { published: false, staged: true, verdict: undefined, decision: undefined };

test.each<[Partial<StoredFacts>, RunState["kind"]]>([
  [{}, "unfinished"],
  [{ verdict: verdict("publish") }, "unfinished"],
  [{ verdict: verdict("hold") }, "held"],
  [{ verdict: verdict("hold"), isErasure: true }, "unfinished"],
  [{ verdict: verdict("hold"), decision: decision("approved") }, "approved"],
  [{ verdict: verdict("publish"), decision: decision("approved") }, "approved"],
  [{ decision: decision("discarded") }, "discarded"],
  [{ verdict: verdict("hold"), decision: decision("superseded") }, "superseded"],
  [{ verdict: verdict("hold"), decision: decision("approved"), published: true }, "published"],
  [{ staged: false }, "unfinished"],
  [{ staged: false, verdict: verdict("hold") }, "unfinished"],
  [{ staged: false, published: true }, "published"],
])("the state of a run with the stored facts %j is %s", (facts, kind) => {
  expect(stateOf({ ...nothing, ...facts }).kind).toBe(kind);
});

const of = (state: RunState, more: Partial<LatestRun> = {}): LatestRun => ({
  state,
  isErasure: false,
  isWhole: true,
  ...more,
});
const unfinished: RunState = { kind: "unfinished" };

const rows: readonly (readonly [string, LatestRun])[] = [
  ["unfinished", of(unfinished, { isWhole: false })],
  ["unfinished", of(unfinished)],
  ["- erasure (plan, all spans)", of(unfinished, { isErasure: true })],
  ["- erasure (plan, some spans)", of(unfinished, { isErasure: true, isWhole: false })],
  ["held", of({ kind: "held", verdict: verdict("hold") })],
  ["approved", of({ kind: "approved", decision: decision("approved") })],
  ["published", of({ kind: "published" })],
  ["discarded", of({ kind: "discarded", decision: decision("discarded") })],
  ["superseded", of({ kind: "superseded", decision: decision("superseded") })],
  [
    "- erasure (decision that names the next run)",
    of({ kind: "superseded", decision: decision("superseded") }, { isErasure: true }),
  ],
];

function runText(latest: LatestRun, newRun: boolean): string {
  const step = runStep(latest, newRun);
  if (step.kind === "publish") {
    const text = step.approve ? "approve, publish" : "publish";
    return step.opensNext ? `${text}, open next` : text;
  }
  return step.kind === "open next" && step.inItsPlace ? "open next in its place" : step.kind;
}

test("the table in the source says what the functions do", () => {
  const source = readFileSync(
    fileURLToPath(new URL("../../../src/run/lifecycle/lifecycle.ts", import.meta.url)),
    "utf8",
  );
  const table = source.match(/^ \* \|.*\|$/gm)?.map((line) => line.split("|").map((cell) => cell.trim())) ?? [];
  const said = new Map(
    table.map(([, state = "", records = "", ...cells]) => [
      state === "- erasure" ? `${state} (${records})` : state,
      cells.slice(0, 5),
    ]),
  );
  const steps = rows.map(([name, latest]) => [
    name,
    [
      runText(latest, false),
      runText(latest, true),
      approveStep(latest.state),
      discardStep(latest.state, true),
      eraseStep(latest).replace("erase earlier", "earlier"),
    ],
  ]);
  expect(new Map(steps as [string, string[]][])).toEqual(
    new Map([...said].filter(([name]) => name !== "state" && name !== "(no run)" && !name.startsWith("--"))),
  );
});

test("a run that its checks have approved, or that is not staged, ends where a person's would not", () => {
  const approved = of({ kind: "approved", decision: decision("approved", byChecks) });
  expect([runText(approved, true), runText({ ...approved, isErasure: true }, true)]).toEqual([
    "publish",
    "publish, open next",
  ]);
  expect(discardStep(unfinished, false)).toBe("refuse");
});

interface Records {
  readonly staged: boolean;
  readonly isErasure: boolean;
  readonly spans: Set<number>;
  verdict?: RunVerdict;
  decision?: Decision;
  published: boolean;
}

const spanCount = 2;

/** The runs of some params at a target, in order. Each method is one atomic act, as targets have them. */
class Target {
  readonly runs: Records[] = [];
  /** The rows that readers have: the number of the run. */
  readers = 0;

  open(number: number, how: Pick<Records, "staged" | "isErasure">): void {
    if (this.runs.length === number - 1) {
      this.runs.push({ ...how, spans: new Set(), published: false });
    }
  }

  at(number: number): Records {
    return this.runs[number - 1] as Records;
  }

  latest(): LatestRun & { readonly number: number; readonly staged: boolean } {
    const run = this.at(this.runs.length);
    const state = stateOf({ ...run, verdict: run.verdict, decision: run.decision });
    const { staged, isErasure } = run;
    return { number: this.runs.length, state, staged, isErasure, isWhole: run.spans.size === spanCount };
  }

  /** Whether an attempt at the run may still write. */
  isOpen(number: number): boolean {
    return this.runs.length === number && ["approved", undefined].includes(this.at(number).decision?.kind);
  }

  commit(number: number, span: number): boolean {
    if (this.isOpen(number)) {
      this.at(number).spans.add(span);
    }
    return this.isOpen(number);
  }

  judge(number: number, outcome: Outcome): Outcome {
    const run = this.at(number);
    expect(run.spans.size).toBe(spanCount);
    run.verdict ??= verdict(outcome);
    return run.verdict.verdict.outcome;
  }

  decide(number: number, made: Decision): Decision {
    const run = this.at(number);
    expect(run.staged).toBe(true);
    run.decision ??= made;
    return run.decision;
  }

  publish(number: number): boolean {
    const run = this.at(number);
    const isApproved = run.staged ? run.decision?.kind === "approved" : this.isOpen(number);
    if (run.published || !isApproved || this.runs.length !== number) {
      return run.published;
    }
    expect(run.spans.size).toBe(spanCount);
    run.published = true;
    this.readers = number;
    return true;
  }
}

type End = "complete" | "held" | "discarded" | "refused" | "stopped";

/** A process: between two acts others act, or it is killed. */
type Process = Generator<undefined, End, undefined>;

interface Job {
  readonly staged: boolean;
  readonly outcome: Outcome;
}

function* runCommand(target: Target, job: Job, newRun: boolean): Process {
  if (target.runs.length === 0) {
    yield;
    target.open(1, { staged: job.staged, isErasure: false });
    return yield* goOn(target, job, false);
  }
  return yield* goOn(target, job, newRun);
}

function* goOn(target: Target, job: Job, newRun: boolean): Process {
  const { number, ...latest } = target.latest();
  const step = runStep(latest, newRun);
  yield;
  switch (step.kind) {
    case "score":
      return yield* score(target, job, number);
    case "refuse":
      return "refused";
    case "report":
      return step.state.kind;
    case "compare with plan":
      return "complete";
    case "publish":
      if (step.approve && target.decide(number, decision("approved")).kind !== "approved") {
        return "stopped";
      }
      yield;
      if (!target.publish(number)) {
        return "stopped";
      }
      yield;
      return step.opensNext ? yield* openNext(target, job, number) : "complete";
    case "open next":
      if (step.inItsPlace && target.decide(number, decision("superseded")).kind === "approved") {
        return yield* goOn(target, job, false);
      }
      yield; // a store creates the decision before the plan
      return yield* openNext(target, job, number);
    default:
      return assertNever(step);
  }
}

function* openNext(target: Target, job: Job, number: number): Process {
  target.open(number + 1, { staged: job.staged, isErasure: false });
  yield;
  return yield* goOn(target, job, false);
}

function* score(target: Target, job: Job, number: number): Process {
  for (let span = 0; span < spanCount; span += 1) {
    if (!target.commit(number, span)) {
      return "stopped";
    }
    yield;
  }
  const outcome = target.judge(number, job.outcome);
  yield;
  const { staged } = target.at(number);
  if (staged && outcome === "hold") {
    return yield* reread(target, number);
  }
  if (staged && target.decide(number, decision("approved", byChecks)).kind !== "approved") {
    return yield* reread(target, number);
  }
  yield;
  return target.publish(number) ? "complete" : "stopped";
}

function* reread(target: Target, number: number): Process {
  yield;
  const { decision: made } = target.at(number);
  return made === undefined ? "held" : made.kind === "discarded" ? "discarded" : "stopped";
}

function* person(target: Target, act: "approve" | "discard"): Process {
  if (target.runs.length === 0) {
    return "refused";
  }
  const { number, state, staged } = target.latest();
  const step = act === "approve" ? approveStep(state) : discardStep(state, staged);
  yield;
  if (step === "refuse" || step === "tell") {
    return "refused";
  }
  const kind = act === "approve" ? "approved" : "discarded";
  if (step === "decide" && target.decide(number, decision(kind)).kind !== kind) {
    return "refused";
  }
  yield;
  return act === "approve" && !target.publish(number) ? "stopped" : "complete";
}

function* erasure(target: Target): Process {
  if (target.runs.length === 0 || target.readers === 0) {
    return "refused";
  }
  const { number, ...latest } = target.latest();
  const step = eraseStep(latest);
  yield;
  if (step === "refuse") {
    return "refused";
  }
  if (step === "finish") {
    return yield* finishErasure(target, number);
  }
  if (latest.isErasure && step === "erase earlier" && latest.state.kind === "unfinished") {
    if (target.decide(number, decision("superseded")).kind === "approved") {
      return "stopped";
    }
    yield;
  }
  target.open(number + 1, { staged: true, isErasure: true });
  if (!target.at(number + 1).isErasure) {
    return "stopped";
  }
  for (let span = 0; span < spanCount; span += 1) {
    yield;
    if (!target.commit(number + 1, span)) {
      return "stopped";
    }
  }
  return yield* finishErasure(target, number + 1);
}

function* finishErasure(target: Target, number: number): Process {
  yield;
  if (target.decide(number, decision("approved")).kind !== "approved") {
    return "stopped";
  }
  yield;
  return target.publish(number) ? "complete" : "stopped";
}

/** What may become of the records of a run. */
const after: Readonly<Record<RunState["kind"], readonly RunState["kind"][]>> = {
  unfinished: ["unfinished", "held", "approved", "discarded", "superseded", "published"],
  held: ["held", "approved", "discarded", "superseded"],
  approved: ["approved", "published"],
  discarded: ["discarded"],
  superseded: ["superseded"],
  published: ["published"],
};

const kindsOf = (target: Target): RunState["kind"][] =>
  target.runs.map((run) => stateOf({ ...run, verdict: run.verdict, decision: run.decision }).kind);

const commands = fc.constantFrom("run", "run", "run --new-run", "approve", "discard", "erase");

function started(target: Target, job: Job, command: string): Process {
  switch (command) {
    case "approve":
    case "discard":
      return person(target, command);
    case "erase":
      return erasure(target);
    default:
      return runCommand(target, job, command === "run --new-run");
  }
}

const runs = torture ? 200_000 : 10_000;

describe("any commands at once, each killed between any two acts", () => {
  test(`lose no decision, publish what is approved only, and leave a state that goes on (${runs} worlds)`, () => {
    const starts = fc.array(
      fc.record({
        command: commands,
        staged: fc.boolean(),
        outcome: fc.constantFrom<Outcome>("publish", "hold"),
        /** Acts until it is killed. */
        lives: fc.oneof(fc.constant(Number.POSITIVE_INFINITY), fc.integer({ min: 1, max: 8 })),
      }),
      { minLength: 2, maxLength: 6, size: "max" },
    );
    // Which of up to three processes acts next.
    const turns = fc.array(fc.nat(2), { maxLength: 50, size: "max" });
    fc.assert(
      fc.property(starts, turns, (list, order) => {
        const target = new Target();
        const waiting = list.map(({ command, lives, ...job }) => ({ process: started(target, job, command), lives }));
        const alive = waiting.splice(0, 3);
        for (const turn of order) {
          const chosen = alive[turn % Math.max(1, alive.length)];
          if (chosen === undefined) {
            break;
          }
          const before = kindsOf(target);
          const readers = target.readers;
          chosen.lives -= 1;
          if (chosen.process.next().done === true || chosen.lives === 0) {
            alive.splice(alive.indexOf(chosen), 1, ...waiting.splice(0, 1));
          }
          refuseFault(target, before, readers);
        }
        carryOn(target);
      }),
      { numRuns: runs },
    );
  });
});

function refuseFault(target: Target, before: readonly RunState["kind"][], readers: number): void {
  const kinds = kindsOf(target);
  const wrong = kinds.findIndex((kind, index) => {
    const was = before[index];
    return was !== undefined && !after[was].includes(kind);
  });
  if (wrong !== -1) {
    throw new Error(`run ${wrong + 1} was ${before[wrong]} and became ${kinds[wrong]}`);
  }
  if (target.readers < readers) {
    throw new Error("readers have an earlier run again");
  }
  if (kinds.slice(0, -1).includes("held")) {
    throw new Error("a later run was opened, and nobody can decide on a held one any more");
  }
}

/** The same commands alone, as their messages say, until a run is complete. */
function carryOn(target: Target): void {
  const job: Job = { staged: true, outcome: "publish" };
  const next: Readonly<Partial<Record<End, string>>> = {
    held: "approve",
    discarded: "run --new-run",
    refused: "erase",
  };
  let command = "run";
  for (let tries = 0; tries < 5; tries += 1) {
    const process = started(target, job, command);
    let step = process.next();
    while (step.done !== true) {
      step = process.next();
    }
    expect(step.value).not.toBe("stopped"); // nobody else is there
    if (command === "run" && step.value === "complete") {
      expect(kindsOf(target).at(-1)).toBe("published");
      return;
    }
    command = command === "run" ? (next[step.value] ?? "run") : "run";
  }
  throw new Error("the run does not come to its end");
}

const runId = "daily-000000000000" as RunId;
const successor = "daily-000000000000-r2" as RunId;

function decided(kind: Decision["kind"]): Decision {
  const at = "2026-11-23T02:10:00.000Z";
  return { kind, by: "ann", at, reason: null, asBaseline: false, ...(kind === "superseded" ? { successor } : {}) };
}

test("a staged run that was approved may be published", () => {
  expect(() => requireApproved(decided("approved"), runId)).not.toThrow();
});

test.each([
  { what: "not decided", decision: undefined, code: "HELD", said: "it is not approved" },
  { what: "discarded", decision: decided("discarded"), code: "DISCARDED", said: "ann discarded it at 2026-11-23" },
  {
    what: "superseded",
    decision: decided("superseded"),
    code: "PLAN_CHANGED",
    said: `run ${successor} takes its place`,
  },
])("a staged run that is $what is not published", ({ decision: approval, code, said }) => {
  expect(() => requireApproved(approval, runId)).toThrow(
    expect.objectContaining({ code, message: expect.stringContaining(said) }),
  );
});

test("a target keeps the last 8 errors of a run, and the last 8 attempts, however often it is started", () => {
  let notes = parseNotes(undefined);
  for (let attempt = 1; attempt <= 20; attempt += 1) {
    const failure = { at: "2026-11-20T00:00:00.000Z", writer: `w${attempt}`, code: "BAD_ROW", spansCommitted: 0 };
    notes = withBegun(withFailure(notes, { ...failure, message: "x".repeat(5000) }), `w${attempt}`);
  }
  const text = JSON.stringify(notes);
  const { errors, begun } = parseNotes(JSON.parse(text));
  const latest = ["w13", "w14", "w15", "w16", "w17", "w18", "w19", "w20"];
  expect(errors.map(({ writer }) => writer)).toEqual(latest);
  expect(begun).toEqual(latest);
  expect(text.length).toBeLessThan(10_000);
});
