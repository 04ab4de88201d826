import type { RunId } from "../plan/plan.js";
import { z } from "../util/zod.js";

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
  /** The run that takes this run's place; of `superseded` only. */
  readonly successor?: RunId | undefined;
}

const schema = z.object({
  kind: z.enum(["approved", "discarded", "superseded"]),
  by: z.string(),
  at: z.string(),
  reason: z.string().nullable(),
  successor: z
    .string()
    .transform((text) => text as RunId)
    .optional(),
}) satisfies z.ZodType<Decision>;

/** Reads a stored decision; undefined for anything else. */
export function parseDecision(json: unknown): Decision | undefined {
  return schema.safeParse(json).data;
}
