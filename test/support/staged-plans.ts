import type { Plan, PlanTarget } from "#src/run/plan/plan.js";
import type { Decision, RunVerdict } from "#src/run/lifecycle/lifecycle.js";
import { planFor } from "./sinks.js";

interface PlanOptions {
  readonly rows?: number;
  readonly commitRows?: number;
  readonly runId?: string;
  readonly params?: Readonly<Record<string, string>>;
}

/** A plan whose rows are published together, after a decision. Param `ds` is the logical date. */
export function stagedPlan(target: PlanTarget, { params = {}, ...options }: PlanOptions = {}): Plan {
  const dateParam = "ds" in params ? "ds" : null;
  return { ...planFor(target, options), params, dateParam, staged: true, checks: { baseline: [] } };
}

export function verdictOf(outcome: "publish" | "hold", writer = "host.1.abc"): RunVerdict {
  return {
    verdict: {
      outcome,
      runId: "job-000000000000",
      date: "",
      baseline: [],
      modelChanged: false,
      results: [],
      known: 0,
      growing: [],
    },
    dates: {},
    thresholds: { on_fail: "hold" },
    writer,
    at: "2026-11-23T04:05:06.789Z",
  };
}

export function decisionOf(kind: Decision["kind"], by = "ana"): Decision {
  const decision = { kind, by, at: "2026-11-23T08:00:00.120Z", reason: "she has seen the numbers", asBaseline: true };
  return kind === "superseded" ? { ...decision, successor: "job-000000000000-r2" as Plan["runId"] } : decision;
}
