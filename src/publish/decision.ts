import type { RunId } from "../plan/plan.js";
import { z } from "../util/zod.js";
import { JobError } from "../util/errors.js";

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

const schema = z.object({
  kind: z.enum(["approved", "discarded", "superseded"]),
  by: z.string(),
  at: z.string(),
  reason: z.string().nullable(),
  asBaseline: z.boolean(),
  successor: z
    .string()
    .transform((text) => text as RunId)
    .optional(),
}) satisfies z.ZodType<Decision>;

/** Reads a stored decision; undefined for anything else. */
export function parseDecision(json: unknown): Decision | undefined {
  return schema.safeParse(json).data;
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
