import type { OutputRows, RejectedRow } from "../batch/types.js";
import type { JobError } from "../errors.js";
import type { Plan, PlanTarget, RunId, Span } from "../plan/plan.js";

/** A plan as it stands at the target, where the first writer put it. */
export interface StoredPlan {
  readonly plan: Plan;
  /** Hex sha256 of its text: names the plan in every part. */
  readonly planId: string;
}

/** The write end: keeps the plan, publishes spans, knows which are committed. */
export interface Sink extends AsyncDisposable {
  /** The target, as a message names it. */
  readonly target: string;
  /** The target, as a plan pins it. */
  readonly planTarget: PlanTarget;
  /**
   * Looks for the run's plan; writes nothing.
   * @throws JobError OUTPUT_FOREIGN when the target holds what is not this run's
   */
  find(runId: RunId): Promise<StoredPlan | undefined>;
  /** Stores a plan unless one is there: the first writer wins, and everybody gets the plan that stands. */
  create(plan: Plan): Promise<StoredPlan>;
  /**
   * Looks at what is committed, checking each part against the plan; writes nothing.
   * @throws JobError OUTPUT_DAMAGED
   */
  open(stored: StoredPlan): Promise<RunSink>;
  /**
   * Puts back what the last finished run replaced. Returns where the rows are now that were there.
   * @throws JobError USAGE when there is nothing to go back to
   */
  rollback(): Promise<string>;
}

export type CommitOutcome = "committed" | "adopted";

export interface RunSink {
  readonly finished: boolean;
  /** One byte a span of the plan: 1 = found committed when the sink was opened. */
  readonly committed: Uint8Array;
  /** Rows that the committed spans rejected. */
  readonly rejectedRows: number;
  /** The rejected rows of committed spans, in span order. */
  rejects(): AsyncIterable<RejectedRow>;
  /** Values that the target cannot hold, at most one a row: such rows are not to be committed. */
  unfit(rows: OutputRows): readonly UnfitValue[];
  /** Makes the target ready to be written to. Called once, before the first commit or finish. */
  begin(): Promise<void>;
  /**
   * Publishes a span's rows, and those it rejected, durably and all at once, or finds that somebody did before
   * and adopts theirs. Rows and rejects together are the span's rows. Safe to repeat. Calls for different spans may overlap.
   * @throws JobError DISK, OUTPUT_DAMAGED
   */
  commit(span: Span, rows: OutputRows, rejects: readonly RejectedRow[]): Promise<CommitOutcome>;
  /** Called when every span is committed; idempotent, so that two finishers do no harm. */
  finish(): Promise<void>;
  /** Told of the error that this attempt ends with, for those who look at the target. Never fails. */
  failed(error: JobError): Promise<void>;
}

export interface UnfitValue {
  /** Of the rows that were asked about. */
  readonly row: number;
  readonly column: string;
  /** What is wrong with it. */
  readonly found: string;
}

/** Commits worth having under way at once: one is encoded while another waits for the disk. */
export const commitConcurrency = 2;
