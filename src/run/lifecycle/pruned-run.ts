import { parseJson, parsePlan } from "../plan/parse-plan.js";
import type { Plan, RunId } from "../plan/plan.js";
import { JobError } from "../../base/errors.js";
import { z } from "../../base/zod.js";

/**
 * Stored as the plan of the run after it, so that an attempt that plans a run, and one that prunes, exclude each other.
 */
export interface Pruning {
  /** The run whose place it takes: one after the pruned run. */
  readonly tombstone: RunId;
  /** The plan of the pruned run, with all of its shards as one. */
  readonly plan: Plan;
  /** Predictions; null: unknown. */
  readonly rows: number | null;
  readonly rejected: number | null;
  /** ISO 8601, in UTC. */
  readonly at: string;
  readonly by: string;
}

const format = "infer-batch-pruned";

/** How the text of each record begins; no plan begins like this. */
export const tombstonePrefix = `{"format":"${format}"`;

const schema = z.object({
  format: z.literal(format),
  version: z.literal(1),
  run_id: z.string(),
  rows: z.int().nullable(),
  rejected: z.int().nullable(),
  at: z.string(),
  by: z.string(),
  plan: z.record(z.string(), z.unknown()),
});

export function tombstoneText({ tombstone, plan, rows, rejected, at, by }: Pruning): string {
  const text = { format, version: 1, run_id: tombstone, rows, rejected, at, by, plan: asOneShard(plan) };
  return `${JSON.stringify(text)}\n`;
}

/** Reads a stored record; undefined for anything else. */
export function parseTombstone(text: string): Pruning | undefined {
  const found = text.startsWith(tombstonePrefix) ? schema.safeParse(parseJson(text)).data : undefined;
  const plan = found === undefined ? undefined : parsePlan(JSON.stringify(found.plan));
  if (found === undefined || plan === undefined) {
    return undefined;
  }
  const { run_id: tombstone, rows, rejected, at, by } = found;
  return { tombstone: tombstone as RunId, plan, rows, rejected, at, by };
}

/** A plan of 100,000 shards takes megabytes, and a pruned run needs none of them. */
function asOneShard(plan: Plan): Plan {
  const { shards, rows } = plan.input;
  const sizeBytes = shards.reduce((sum, shard) => sum + shard.sizeBytes, 0);
  return { ...plan, input: { ...plan.input, shards: [{ uri: "", sizeBytes, fingerprint: "", rows }] } };
}

/** The error for a command that needs the output of a pruned run. @param next the command that scores it again */
export function prunedError({ plan: { runId, target }, at, by }: Pruning, next: string): JobError {
  const gone = target.kind === "postgres" ? "its rejected rows and profiles are gone" : "its predictions are gone";
  return new JobError("PRUNED", `opening run ${runId}: ${by} pruned it at ${at}, and ${gone}`, {
    hint: `a pruned run is not scored again by itself; to score it as a new run: ${next}`,
  });
}

/** Returns what is stored of a run. @throws JobError PRUNED for a pruned run */
export function requireKept<T extends { readonly pruned?: Pruning | undefined }>(stored: T): T {
  if (stored.pruned !== undefined) {
    throw prunedError(stored.pruned, "infer-batch run --new-run");
  }
  return stored;
}

export interface PruneRequest {
  /** The folder or table of the runs, as `history` names it. */
  readonly place: string;
  /** The latest of these runs that is known. Nothing is removed where a later one was planned meanwhile. */
  readonly latest: RunId;
  /** The tombstone to store. Of a run that was pruned before, the stored one. */
  readonly pruning: Pruning;
  readonly dryRun: boolean;
}

export interface Removed {
  readonly files: number;
  /** Those that are gone, or that nothing is known to keep. */
  readonly tables: readonly string[];
  readonly rejects: number;
  /** Profiles that a table held. */
  readonly profiles: number;
  readonly bytes: number;
}

export const nothingRemoved: Removed = { files: 0, tables: [], rejects: 0, profiles: 0, bytes: 0 };

export type PruneOutcome =
  | ({ readonly kind: "removed" } & Removed)
  /** Nothing was removed, because of what happened meanwhile. `why` follows "retained: ". */
  | { readonly kind: "retained"; readonly why: string };

/** A table that keeps what a run has replaced. */
export interface PreviousTable {
  readonly name: string;
  /** The run whose rows it holds; undefined: no run wrote them. */
  readonly runId: RunId | undefined;
  readonly bytes: number;
  /** Why it cannot be dropped; absent: nothing is known that forbids it. */
  readonly keptBy?: string | undefined;
}
