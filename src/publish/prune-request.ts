import type { RunId } from "../plan/plan.js";
import type { Pruning } from "./pruned-run.js";

/** What is to be removed of the runs of some params. */
export interface PruneRequest {
  /** The folder or table of the runs, as `history` names it. */
  readonly place: string;
  /** The latest of these runs that is known. Nothing is removed where a later one was planned meanwhile. */
  readonly latest: RunId;
  /** The tombstone to store. Of a run that was pruned before, the stored one. */
  readonly pruning: Pruning;
  /** Only count what would be removed. */
  readonly dryRun: boolean;
}

/** What was removed, or would be. */
export interface Removed {
  readonly files: number;
  /** Those that are gone, or that nothing is known to keep. */
  readonly tables: readonly string[];
  /** Rows of rejects. */
  readonly rejects: number;
  /** Profiles that a table held. */
  readonly profiles: number;
  /** Size of files and tables. */
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
