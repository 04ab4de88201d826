import type { Verdict } from "../checks/check.js";
import { z } from "../util/zod.js";

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

/** The value of `checks.baseline` for published runs. */
const published = "published";

/** Only what decides is checked: the rest is shown to people. */
const schema = z.looseObject({
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
  return schema.safeParse(json).data as unknown as RunVerdict | undefined;
}
