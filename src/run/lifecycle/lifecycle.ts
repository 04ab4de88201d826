import { assertNever, JobError } from "../../base/errors.js";
import type { RunId } from "../plan/plan.js";
import { z } from "../../base/zod.js";
import type { Verdict } from "../../checks/check.js";

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

/**
 * What becomes of a staged run. A run has one decision at most, which is created once and never changes: approving,
 * discarding, superseding and passing checks race for it.
 */
export interface Decision {
  /** `approved`: the run is published. `superseded`: the run after it takes its place. */
  readonly kind: "approved" | "discarded" | "superseded";
  /** Who decided: "checks" where the verdict passed, else a person or a scheduler's task. */
  readonly by: string;
  /** ISO 8601, in UTC. */
  readonly at: string;
  readonly reason: string | null;
  /**
   * Whether later runs are compared with this one, once it is published: not where a person says that it is not normal,
   * nor where it was expected to differ.
   */
  readonly asBaseline: boolean;
  /** Whether no later run of the chain reads the rows of this one; of `discarded` only. Default: the next one does. */
  readonly skips?: true | undefined;
  /** The run that takes this run's place; of `superseded` only. */
  readonly successor?: RunId | undefined;
}

/** The decision that a later run takes the place of one that is not published. @param at ISO 8601, in UTC */
export function supersededBy(successor: RunId, { by, at }: Pick<Decision, "by" | "at">): Decision {
  return { kind: "superseded", by, at, reason: null, asBaseline: false, successor };
}

/** A run that another one takes the place of, and the decision that says so. */
export interface SupersededRun {
  readonly runId: RunId;
  readonly decision: Decision;
}

/** What `by` is where a verdict that passed decides. */
export const byChecks = "checks";

/**
 * A decision for people: "approved by ann, as not normal: a holiday", or "superseded by daily-0123456789ab-r2, opened by
 * ann". @param withTime also says when it was made
 */
export function decisionText({ kind, by, at, reason, asBaseline, successor }: Decision, withTime = false): string {
  const normal = kind === "approved" && !asBaseline ? ", as not normal" : "";
  const who = kind === "superseded" ? `${successor ?? "a later run"}, opened by ${by}` : by;
  return `${kind} by ${who}${withTime ? ` at ${at}` : ""}${normal}${reason === null ? "" : `: ${reason}`}`;
}

/** Who decided, when and why: "by ann at 2026-11-21T06:00:00.000Z: a holiday". */
export function byText({ by, at, reason }: Decision): string {
  return `by ${by} at ${at}${reason === null ? "" : `: ${reason}`}`;
}

const decisionSchema = z.object({
  kind: z.enum(["approved", "discarded", "superseded"]),
  by: z.string(),
  at: z.string(),
  reason: z.string().nullable(),
  asBaseline: z.boolean(),
  skips: z.literal(true).optional(),
  successor: z
    .string()
    .transform((text) => text as RunId)
    .optional(),
}) satisfies z.ZodType<Decision>;

/** Reads a stored decision; undefined for anything else. */
export function parseDecision(json: unknown): Decision | undefined {
  return decisionSchema.safeParse(json).data;
}

/**
 * Refuses to publish a staged run unless it is approved.
 * @throws JobError HELD without a decision, DISCARDED, PLAN_CHANGED for a superseded run
 */
export function requireApproved(decision: Decision | undefined, runId: RunId): void {
  switch (decision?.kind) {
    case "approved":
      return;
    case undefined:
      throw new JobError("HELD", `publishing run ${runId}: it is not approved`, {
        hint: "approve it, or discard it",
      });
    case "discarded":
      throw new JobError("DISCARDED", `publishing run ${runId}: ${decision.by} discarded it at ${decision.at}`, {
        hint: "a run with --new-run takes its place",
      });
    case "superseded":
      throw new JobError("PLAN_CHANGED", `publishing run ${runId}: run ${decision.successor ?? ""} takes its place`, {
        hint: "run the same command again: it continues that run",
      });
  }
}

/**
 * The verdict on a run as the target stores it. The attempt that commits the last span creates it; all others adopt it.
 * It is never computed again.
 */
export interface RunVerdict {
  readonly verdict: Verdict;
  /** Logical dates of the runs that it was compared with, by run id. */
  readonly dates: Readonly<Record<string, string>>;
  /** The thresholds that it was made with: `checks` of the attempt's spec, as plain JSON. */
  readonly thresholds: Readonly<Record<string, unknown>>;
  /** How long the attempt that made it had scored; absent: it scored no row. */
  readonly seconds?: number;
  /** The attempt that made it. */
  readonly writer: string;
  /** ISO 8601, in UTC. */
  readonly at: string;
}

/** The file of `checks.baseline` that the run was compared with; undefined: it was compared with earlier runs. */
export function comparedFile({ thresholds: { baseline } }: Pick<RunVerdict, "thresholds">): string | undefined {
  return typeof baseline === "string" && baseline !== published ? baseline : undefined;
}

const published = "published";

/** Only what decides is checked: the rest is shown to people. */
const verdictSchema = z.looseObject({
  verdict: z.looseObject({
    outcome: z.enum(["publish", "hold"]),
    runId: z.string(),
    date: z.string(),
    baseline: z.array(z.string()),
    modelChanged: z.boolean(),
    results: z.array(z.looseObject({ check: z.string(), level: z.enum(["pass", "warn", "hold"]) })),
  }),
  dates: z.record(z.string(), z.string()),
  thresholds: z.record(z.string(), z.unknown()),
  writer: z.string(),
  at: z.string(),
});

/** Reads a stored verdict; undefined for anything else. */
export function parseRunVerdict(json: unknown): RunVerdict | undefined {
  return verdictSchema.safeParse(json).data as unknown as RunVerdict | undefined;
}
