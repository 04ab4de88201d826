import { assertNever } from "../util/errors.js";
import { byChecks, type Decision } from "./decision.js";
import type { RunVerdict } from "./run-verdict.js";

/**
 * The life of a run: records in, next step out. Nothing else decides what becomes of a run; a command reads the records,
 * asks here, carries the step out, and whoever comes next goes on from the records that it left.
 *
 * Records are created once and never change: the plan, spans, the verdict, the decision, the publication. Whoever
 * creates one first wins; others adopt it. What a command does with the latest run of the job's params:
 *
 * | state      | records                          | run               | run --new-run               | approve | discard | erase   |
 * | ---------- | -------------------------------- | ----------------- | --------------------------- | ------- | ------- | ------- |
 * | (no run)   | none                             | open it           | open it                     | refuse  | refuse  | -       |
 * | unfinished | plan; verdict that lets it pass  | score             | score                       | refuse  | decide  | refuse  |
 * | - erasure  | plan, all spans                  | approve, publish  | approve, publish, open next | refuse  | decide  | finish  |
 * | - erasure  | plan, some spans                 | refuse            | open next in its place      | refuse  | decide  | earlier |
 * | held       | verdict that holds it            | report            | open next in its place      | decide  | decide  | refuse  |
 * | approved   | decision                         | publish           | publish, open next          | publish | refuse  | refuse  |
 * | published  | publication                      | compare with plan | open next                   | tell    | refuse  | erase   |
 * | discarded  | decision                         | report            | open next                   | refuse  | tell    | earlier |
 * | superseded | decision that names the next run | open next         | open next                   | refuse  | refuse  | refuse  |
 * | - erasure  | decision that names the next run | refuse            | open next                   | refuse  | refuse  | earlier |
 *
 * "In its place": the decision that supersedes the run is created together with the next plan. A run that is not staged is
 * unfinished or published only, and is not discarded. `run --new-run` only publishes a run that its checks have approved:
 * it may be this command's own.
 */
export type RunState =
  /** Spans are missing, or there is no verdict yet, or it passed and is not acted upon yet. */
  | { readonly kind: "unfinished" }
  /** The verdict holds the run, and there is no decision yet. */
  | { readonly kind: "held"; readonly verdict: RunVerdict }
  /** Publishing is under way or was killed: any attempt continues it. */
  | { readonly kind: "approved"; readonly decision: Decision }
  /** @property rolledBack whether a person has put back the table that it had replaced; default: no */
  | { readonly kind: "published"; readonly rolledBack?: boolean }
  | { readonly kind: "discarded"; readonly decision: Decision }
  | { readonly kind: "superseded"; readonly decision: Decision };

export function isRolledBack(state: RunState): boolean {
  return state.kind === "published" && state.rolledBack === true;
}

/** What is stored of a run. */
export interface StoredFacts {
  readonly published: boolean;
  readonly staged: boolean;
  readonly verdict: RunVerdict | undefined;
  readonly decision: Decision | undefined;
  /** Whether its verdict is that of the run whose rows it copies, and never holds it. Default: it is not. */
  readonly isErasure?: boolean;
}

/** The state that these records make. */
export function stateOf({ published, staged, verdict, decision, isErasure = false }: StoredFacts): RunState {
  if (published) {
    return { kind: "published" };
  }
  if (!staged) {
    return { kind: "unfinished" };
  }
  if (decision !== undefined) {
    return { kind: decision.kind, decision };
  }
  return verdict?.verdict.outcome === "hold" && !isErasure ? { kind: "held", verdict } : { kind: "unfinished" };
}

/** The latest run of some params. */
export interface LatestRun {
  readonly state: RunState;
  readonly isErasure: boolean;
  /** Whether all of its spans are committed. */
  readonly isWhole: boolean;
}

/** What `run` does with a run that is planned. */
export type RunStep =
  | { readonly kind: "score" }
  /** The erasure lacks spans, which only another erasure or a new run replaces. */
  | { readonly kind: "refuse" }
  | { readonly kind: "report"; readonly state: Extract<RunState, { kind: "held" | "discarded" }> }
  /** @property approve: the erasure has no decision yet. opensNext: a new run is opened after it. */
  | { readonly kind: "publish"; readonly approve: boolean; readonly opensNext: boolean }
  | { readonly kind: "compare with plan" }
  /** @property why what became of the run: "was discarded" */
  | { readonly kind: "open next"; readonly why: string; readonly inItsPlace: boolean };

export function runStep({ state, isErasure, isWhole }: LatestRun, newRun: boolean): RunStep {
  switch (state.kind) {
    case "unfinished":
      if (!isErasure) {
        return { kind: "score" };
      }
      if (isWhole) {
        return { kind: "publish", approve: true, opensNext: newRun };
      }
      return newRun
        ? { kind: "open next", why: "is an erasure that is not finished", inItsPlace: true }
        : { kind: "refuse" };
    case "held":
      return newRun ? { kind: "open next", why: "is held", inItsPlace: true } : { kind: "report", state };
    case "approved":
      return { kind: "publish", approve: false, opensNext: newRun && (state.decision.by !== byChecks || isErasure) };
    case "published":
      return newRun ? { kind: "open next", why: "is complete", inItsPlace: false } : { kind: "compare with plan" };
    case "discarded":
      return newRun ? { kind: "open next", why: "was discarded", inItsPlace: false } : { kind: "report", state };
    case "superseded":
      if (isErasure && !newRun) {
        return { kind: "refuse" };
      }
      return { kind: "open next", why: isErasure ? "was superseded" : "was held", inItsPlace: false };
    default:
      return assertNever(state);
  }
}

/** What `approve` and `discard` do with a planned run. "tell": the same decision was made and carried out before. */
export type DecisionStep = "decide" | "publish" | "tell" | "refuse";

const approveSteps: Readonly<Record<RunState["kind"], DecisionStep>> = {
  unfinished: "refuse",
  held: "decide",
  approved: "publish",
  published: "tell",
  discarded: "refuse",
  superseded: "refuse",
};

export function approveStep({ kind }: RunState): DecisionStep {
  return approveSteps[kind];
}

/** @param staged whether the run's plan says that a decision can hold it back */
export function discardStep({ kind }: RunState, staged: boolean): Exclude<DecisionStep, "publish"> {
  if (kind === "discarded") {
    return "tell";
  }
  return staged && (kind === "unfinished" || kind === "held") ? "decide" : "refuse";
}

/**
 * What `erase` does where rows are files. "finish": the erasure before it has all of its spans, and is published first.
 * "erase earlier": readers have an earlier run. "refuse": the run is scored, published or decided on first.
 */
export type EraseStep = "erase" | "finish" | "erase earlier" | "refuse";

export function eraseStep({ state: { kind }, isErasure, isWhole }: LatestRun): EraseStep {
  if (kind === "published") {
    return "erase";
  }
  if (isErasure) {
    return kind === "approved" || (kind === "unfinished" && isWhole) ? "finish" : "erase earlier";
  }
  return kind === "discarded" ? "erase earlier" : "refuse";
}
