import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { RunId } from "#src/plan/plan.js";
import type { Decision } from "#src/publish/decision.js";
import { requireApproved } from "#src/publish/require-approved.js";
import type { RunVerdict } from "#src/publish/run-verdict.js";
import { type RunState, stateOf, type StoredFacts } from "#src/publish/state.js";

const verdict = (outcome: "publish" | "hold"): RunVerdict => ({
  verdict: { outcome, runId: "r", date: "", baseline: [], known: 0, modelChanged: false, results: [], growing: [] },
  dates: {},
  thresholds: {},
  writer: "w",
  at: "",
});
const decision = (kind: Decision["kind"]): Decision => ({ kind, by: "ann", at: "", reason: null, asBaseline: false });

const nothing: StoredFacts = { published: false, staged: true, verdict: undefined, decision: undefined };

describe("the state of a run", () => {
  test.each<[Partial<StoredFacts>, RunState["kind"]]>([
    [{}, "unfinished"],
    [{ verdict: verdict("publish") }, "unfinished"],
    [{ verdict: verdict("hold") }, "held"],
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

  test("a run's state only moves forward, for any order of actions of attempts and people", () => {
    const act = fc.constantFrom("judge publish", "judge hold", "approve", "discard", "supersede", "checks", "finish");
    fc.assert(
      fc.property(fc.array(act, { maxLength: 30 }), (acts) => {
        let facts = nothing;
        for (const each of acts) {
          const before = stateOf(facts);
          facts = afterAct(facts, each);
          expect([before.kind, stateOf(facts).kind]).toSatisfy(isStep);
        }
        expect(facts.published && facts.decision?.kind !== "approved").toBe(false);
      }),
      { numRuns: 2000 },
    );
  });
});

/** What is stored after an act. Each act reads the state first, as commands do, and creates what is absent only. */
function afterAct(facts: StoredFacts, act: string): StoredFacts {
  const decide = (kind: Decision["kind"]): StoredFacts => ({ ...facts, decision: facts.decision ?? decision(kind) });
  const state = stateOf(facts).kind;
  switch (act) {
    case "judge publish":
    case "judge hold":
      return { ...facts, verdict: facts.verdict ?? verdict(act === "judge hold" ? "hold" : "publish") };
    case "checks":
      return facts.verdict?.verdict.outcome === "publish" ? decide("approved") : facts;
    case "approve":
      return state === "held" ? decide("approved") : facts;
    case "discard":
      return state === "published" ? facts : decide("discarded");
    case "supersede":
      return state === "held" ? decide("superseded") : facts;
    default:
      return isApproved(facts.decision) ? { ...facts, published: true } : facts;
  }
}

function isApproved(found: Decision | undefined): boolean {
  try {
    requireApproved(found, "r" as RunId);
    return true;
  } catch {
    return false;
  }
}

const steps: Readonly<Record<RunState["kind"], readonly RunState["kind"][]>> = {
  unfinished: ["unfinished", "held", "approved", "discarded"],
  held: ["held", "approved", "discarded", "superseded"],
  approved: ["approved", "published"],
  discarded: ["discarded"],
  superseded: ["superseded"],
  published: ["published"],
};

function isStep([from, to]: readonly RunState["kind"][]): boolean {
  return from !== undefined && to !== undefined && steps[from].includes(to);
}
