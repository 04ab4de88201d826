import type { ColumnType, OutputRows, RejectedRow, SpanOutput } from "../columnar/types.js";
import type { JobError } from "../util/errors.js";
import type { Plan, PlanTarget, RunId, Span } from "../plan/plan.js";

/** A plan as it stands at the target, where the first writer put it. */
export interface StoredPlan {
  readonly plan: Plan;
  /** Hex sha256 of its text: names the plan in every part. */
  readonly planId: string;
}

/**
 * The write end: keeps the plan, publishes spans, knows which are committed. What only some targets can do, or must be
 * asked, is optional.
 */
export interface Sink extends AsyncDisposable {
  /** The target, as a message names it. */
  readonly target: string;
  /** The target, as a plan pins it. */
  readonly planTarget: PlanTarget;
  /** A new run's rows come beside those of the runs before it; else they take their place. */
  readonly newRunAdds: boolean;
  /** What the spec asks of the target now that differs from what was planned, a line each. Default: nothing can. */
  compareTarget?(planned: PlanTarget): readonly string[];
  /**
   * Looks for the plan of the latest run of this job and these params: `base`, or a new run after it (`base-r2` …).
   * Writes nothing.
   * @throws JobError OUTPUT_FOREIGN when the target holds what is not theirs
   */
  find(base: RunId): Promise<StoredPlan | undefined>;
  /**
   * Plans of this job's other runs that were begun and are not finished, as far as the target can tell where they
   * lie; at most some. Writes nothing.
   */
  unfinished(job: string, base: RunId): Promise<readonly UnfinishedRun[]>;
  /** Told that spans will be committed: what that takes can be loaded beside the model. Never fails. */
  expect?(): void;
  /**
   * Asked before a run is opened after another one, which it gives up or scores once more; not where it is planned
   * already. Default: a new run is always welcome.
   * @throws JobError USAGE where the rows of the runs before would stay beside its own
   */
  admitNewRun?(runId: RunId): Promise<void>;
  /** Stores a plan unless there is one: the first writer wins, and everybody gets the plan that is stored. */
  create(plan: Plan): Promise<StoredPlan>;
  /**
   * Looks at what is committed, checking each part against the plan; writes nothing.
   * @throws JobError OUTPUT_DAMAGED
   */
  open(stored: StoredPlan): Promise<RunSink>;
  /**
   * Puts back what the last finished run replaced. Returns where the rows are now that were there. Default: the target
   * keeps nothing of what a run replaces.
   * @throws JobError USAGE when there is nothing to go back to
   */
  rollback?(): Promise<string>;
}

export interface UnfinishedRun {
  readonly plan: Plan;
  /** As a message names it. */
  readonly target: string;
}

export type CommitOutcome = "committed" | "adopted";

/** What an attempt made its spans with: recorded with each, for people; never compared. */
export interface AttemptFacts {
  /** One of `workers`, from 0. */
  readonly worker: number;
  readonly workers: number;
  readonly program: string;
  readonly provider: string;
  readonly onBadRow: "fail" | "reject";
}

/** Who committed a span. */
export interface Maker extends AttemptFacts {
  /** Rows that the model was given at once. */
  readonly batchSize: number;
  /** Host, process and a number of its own. */
  readonly writer: string;
}

/** What is known of a run at its target. */
export interface RunSink {
  readonly finished: boolean;
  /** One byte a span of the plan: 1 = committed, as far as is known: `commit` and `refresh` add to it. */
  readonly committed: Uint8Array;
  /** Rows that the committed spans rejected. */
  readonly rejectedRows: number;
  /** By committed span. */
  readonly makers: ReadonlyMap<number, Maker>;
  /** The rejected rows of committed spans, in span order. */
  rejects(): AsyncIterable<RejectedRow>;
  /** Looks for what other attempts committed meanwhile. @throws JobError OUTPUT_DAMAGED */
  refresh(): Promise<void>;
  /**
   * Makes the target ready to be written to, once in an attempt.
   * @throws JobError USAGE when several workers would not be safe there
   */
  begin(attempt: AttemptFacts): Promise<RunWriter>;
  /**
   * Of a finished run only: removes what attempts left behind that were still about when it was finished. Never fails
   * for what it may not remove: readers do not see it.
   */
  tidy?(): Promise<void>;
}

/** Writes to a run that has begun. */
export interface RunWriter {
  /** Values that the target cannot hold, at most one a row: such rows are not to be committed. Default: it holds all. */
  unfit?(rows: OutputRows): readonly UnfitValue[];
  /**
   * Publishes a span's rows, and those it rejected, durably and all at once, or finds that somebody did before
   * and adopts theirs. Rows, rejects and filtered rows together are the span's. Safe to repeat. Calls for
   * different spans may overlap.
   * @throws JobError DISK, OUTPUT_DAMAGED
   */
  commit(span: Span, output: SpanOutput): Promise<CommitOutcome>;
  /**
   * Called when every span is committed; idempotent, so that two finishers do no harm. `attempt`: what the one that
   * finishes did, plain JSON, for those who read the manifest where there is one.
   */
  finish(attempt?: AttemptJson): Promise<void>;
  /** Told of the error that this attempt ends with, for those who look at the target. Never fails. */
  failed?(error: JobError): Promise<void>;
}

export type AttemptJson = Readonly<Record<string, unknown>>;

export interface UnfitValue {
  /** Of the rows that were asked about. */
  readonly row: number;
  readonly column: string;
  /** What is wrong with it. */
  readonly found: string;
}

/** Commits worth having under way at once: one is encoded while another waits for the disk. */
export const commitConcurrency = 2;

/** The write end of a pipe: rows in order, for a program that reads them as they come. */
export interface RowWriter {
  /** Tells the columns, before any rows. @throws JobError CONTRACT for a type that cannot be told */
  begin(columns: readonly { readonly name: string; readonly type: ColumnType }[]): Promise<void>;
  /** Is done when there is room for more. Never called before the last call is done. */
  write(rows: OutputRows): Promise<void>;
  /** All rows came: a reader that does not meet this knows that some are missing. */
  end(): Promise<void>;
}
