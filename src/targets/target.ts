import type { NamedColumn, OutputRows, RejectedRow, SpanOutput, TypedColumn } from "../columns/types.js";
import type { SpanProfile } from "../checks/profile/profile.js";
import type { KeyCounts } from "../checks/rules/spec.js";
import type {
  AttemptFacts,
  PublishedRowsRequest,
  SpanRecord,
  StoredFiles,
  StoredSpans,
  StoredTable,
} from "../run/lifecycle/span-record.js";
import type { PinnedRun, Plan, PlanTarget, RunId, Span } from "../run/plan/plan.js";
import type { RunState, SupersededRun } from "../run/lifecycle/lifecycle.js";
import type { ErasedTable, TableErasure } from "../run/lifecycle/erasure.js";
import type { PreviousTable, PruneOutcome, PruneRequest, Pruning } from "../run/lifecycle/pruned-run.js";
import type { PublishedRun, RolledBack } from "../run/lifecycle/published-run.js";
import type { HistoryRequest, RecordedRun } from "../run/lifecycle/recorded-run.js";
import type { AnswerJournal, Ledger, PlannedRun } from "../stores/ledger.js";

/** A plan that is stored at the target: the first writer's. */
export interface StoredPlan extends PlannedRun {
  /** Set where the run was pruned: nothing of it can be opened. Default: it was not. */
  readonly pruned?: Pruning | undefined;
}

/**
 * The write end of a job: it stores plans, publishes spans, and knows which are committed.
 * `test/support/memory-target.ts` is one.
 *
 * Each call is safe to repeat, also after one that failed or whose process died, unless it says otherwise.
 * @throws JobError 75 for what passes (DISK, OBJECT_STORE, DATABASE), 64 for what this user may not do (PERMISSION)
 */
export interface Sink extends AsyncDisposable {
  readonly target: string;
  /** The target as a plan pins it. */
  readonly planTarget: PlanTarget;
  readonly ledger: Ledger;
  /** undefined: rows are not in a table. */
  readonly table: TargetTable | undefined;
  /**
   * Finds the plan of the latest run of this job and these params: `base`, or a new run after it (`base-r2` …); or of the
   * run with this number. Of a pruned run too. undefined: it was never planned. Writes nothing.
   * @throws JobError OUTPUT_FOREIGN when the target of the latest run holds files or rows of something else
   */
  find(base: RunId, number?: number): Promise<StoredPlan | undefined>;
  /**
   * Checks the target as a run does before it scores: permissions, columns, free space. Returns the checks that were not
   * carried out, a line each. Changes nothing.
   * @param isPlanned whether the run has a plan already, and attempts may be working on it
   * @throws JobError the errors of `create` and `begin`
   */
  rehearse(plan: Plan, isPlanned: boolean): Promise<readonly string[]>;
  /**
   * Makes what notes on a run need that is not planned: a table that they are in the folder of. Called before a chain notes
   * what the run reads.
   * @throws JobError the errors of `create` for a table that cannot be made
   */
  makePlace(plan: Plan): Promise<void>;
  /**
   * Stores a plan unless there is one. Returns the stored plan, which is the first writer's.
   * @param insteadOf the held run in whose place the plan comes, with the decision that says so: both are stored or
   * neither, and where two records cannot be stored at once, the decision comes first. Of a run that is approved, returns
   * its own plan, and stores nothing
   * @throws JobError PLAN_CHANGED when a later run came first; of a new run, USAGE if rows of earlier runs would stay with
   * its own, OUTPUT_NEWER if it would replace later dates
   */
  create(plan: Plan, insteadOf?: SupersededRun): Promise<StoredPlan>;
  /**
   * Reads what is committed of a run, and checks each part against the plan. Writes nothing.
   * @throws JobError OUTPUT_DAMAGED; PRUNED for a pruned run
   */
  open(stored: StoredPlan, how?: Opening): Promise<RunSink>;
  /**
   * Finds the runs that are published and were not rolled back, of any job, those of one place in the order of their
   * publication. `here`: where the rows of this target's params go. `everywhere`: those of the job whose params differ in
   * dates, too, where these have places of their own; of many, the last before and after this one. Writes nothing.
   */
  published(where: "here" | "everywhere"): Promise<readonly PublishedRun[]>;
  /**
   * Reads the profile of a published run, as `runProfileText` wrote it.
   * @throws JobError DISK, DATABASE or OBJECT_STORE (75) when it is not there, or its digest is not the pinned one
   */
  readProfile(pinned: PinnedRun): Promise<string>;
  /**
   * Offers the rows of a published run as files on this machine.
   * @throws JobError when they are gone, or no longer those of that run
   */
  readPublished(request: PublishedRowsRequest): Promise<StoredFiles>;
  /**
   * Finds the latest runs of a job with any params, as far as the target can find them. Returns a bounded number, in
   * any order; of those that are not finished, the newest first where the target knows it. Writes nothing.
   */
  history(request: HistoryRequest): Promise<readonly RecordedRun[]>;
  /** Opens the rows of a published run by their keys; undefined: they are read from its files. */
  openKeyedRows(plan: Plan, key: readonly string[]): Promise<KeyedRows | undefined>;
  /**
   * Removes what is stored of the runs of some params, all of which are over: first the mark that readers wait for, then
   * the rows. Stores a tombstone before any row goes, so that no attempt plans or finishes a run of these params. Rows
   * that a table holds are never removed. Safe to repeat, and to run several times at once.
   */
  prune(request: PruneRequest): Promise<PruneOutcome>;
}

/** What only a table can do. */
export interface TargetTable {
  /** Offers the rows of the table with this name, as `RunSink.read` does. @throws JobError USAGE where there is none */
  read(table: string, key: readonly string[]): Promise<StoredTable>;
  /**
   * Deletes the rows of some keys from the table, and from the tables that keep its earlier rows. Safe to repeat.
   * @throws JobError NOT_ERASED while a run is open; USAGE for a key that is no value of its column
   */
  erase(request: TableErasure): Promise<readonly ErasedTable[]>;
  /**
   * Drops those of the tables that keep what runs replaced which `choose` returns; it is given all, the newest first. Returns
   * those that are gone, or would be, and warns of the others. Safe to repeat.
   */
  prunePrevious(
    choose: (tables: readonly PreviousTable[]) => readonly PreviousTable[],
    dryRun: boolean,
  ): Promise<readonly PreviousTable[]>;
  /**
   * Restores what the last finished run replaced. Not safe to repeat: a second call restores what was there before that.
   * @throws JobError USAGE when there is nothing to restore, OUTPUT_NEWER when rows of later runs would go, too
   */
  rollBack(): Promise<RolledBack>;
}

/** The rows of a published run by their keys, for requests that wait. */
export interface KeyedRows extends AsyncDisposable {
  /**
   * Finds rows by their keys, which have no NULL. Of a row, undefined: no published run has it; of all: where they are
   * kept does not answer now. Not tried again for long.
   * @param keys the columns of the key
   * @throws JobError USAGE for a key that no row can have; other errors where the rows cannot be read
   */
  lookUp(keys: readonly NamedColumn[], rows: number): Promise<readonly (FoundRow | undefined)[] | undefined>;
}

/** A row of a published run. */
export interface FoundRow {
  /** Its columns as the members of an object of JSON. */
  readonly members: string;
  readonly runId: string;
  readonly model: string;
}

/** How a run is opened. */
export interface Opening {
  /** Whether the run is opened only to discard it: missing or damaged rows of an unpublished run are then accepted. */
  readonly toDiscard: boolean;
}

export type CommitOutcome = "committed" | "adopted";

/** A run at its target, for reading, with the plan that it was opened with. */
export interface RunSink extends StoredPlan {
  /** The state when the run was opened. */
  readonly state: RunState;
  /** The committed spans, by index, as far as they are known: `commit` and `refresh` add to them. */
  readonly spans: ReadonlyMap<number, SpanRecord>;
  /**
   * Offers the rows of a run whose spans are all committed as files on this machine: those of its spans, which `erase`
   * copies, or of a table, which erases them in place.
   * @param key columns whose numbers stay exact: as texts if they have more digits than a number holds
   * @throws JobError USAGE where the rows cannot be told from those of other runs
   */
  read(key: readonly string[]): Promise<StoredTable | StoredSpans>;
  /**
   * The answers that attempts of this run have paid for. The end of the run removes them: `finish`, `prune`, and a
   * later run of the same params. Never fails: it reads nothing yet.
   */
  answers(): AnswerJournal;
  /** Yields the rejected rows of committed spans, in span order. @throws JobError OUTPUT_DAMAGED when some are gone */
  rejects(): AsyncIterable<RejectedRow>;
  /** Reads which spans other attempts have committed since the last call. @throws JobError OUTPUT_DAMAGED */
  refresh(): Promise<void>;
  /**
   * Merges the profiles of all committed spans. Called when every span is committed.
   * @throws JobError OUTPUT_DAMAGED if a profile is gone; DISCARDED, PLAN_CHANGED
   */
  profile(): Promise<SpanProfile>;
  /**
   * Counts how often keys repeat among the rows of all committed spans. The count is exact, and reads the whole output.
   * Called when every span is committed and the run is not finished.
   * @param columns output columns, without lists and structs
   * @throws JobError MEMORY, DISK, OBJECT_STORE, DATABASE
   */
  countKeys(columns: readonly string[]): Promise<KeyCounts>;
  /**
   * Prepares the target for writing. Called once in an attempt.
   * @throws JobError USAGE when several workers would not be safe there; DISCARDED, PLAN_CHANGED, OUTPUT_NEWER
   */
  begin(attempt: AttemptFacts): Promise<RunWriter>;
  /**
   * Ends a run as was decided, and returns how. Called when every span is committed, or the run is over; idempotent, so
   * that two attempts can both call it. Needs neither model nor input.
   *
   * Publishes a run that is not, with its profile; a staged one if the stored decision is `approved`, which it reads itself.
   * Of a published run, removes what late attempts left behind, and what is left of replaced runs; of a discarded one, its
   * rows, too: what may not be removed stays, since readers never see it.
   * @param attempt plain JSON about the attempt that finishes, for the manifest where there is one
   * @throws JobError HELD for a staged run without a decision, PLAN_CHANGED for a superseded one
   */
  finish(attempt?: AttemptJson): Promise<"published" | "discarded">;
}

/** A value that the target cannot hold. */
export interface UnfitValue {
  /** Index of the row among those passed to `RunWriter.unfit`. */
  readonly row: number;
  readonly column: string;
  readonly found: string;
}

/** A run that has begun, for writing. */
export interface RunWriter {
  /** Finds values that the target cannot hold, at most one a row. Such rows must not be committed. Never fails. */
  unfit(rows: OutputRows): Promise<readonly UnfitValue[]>;
  /**
   * Encodes rows of a span before the span is complete, so that memory need not hold them: its first rows, or those
   * after the rows that were spilled before. Publishes nothing: `commit` publishes them before its own rows. Calls for
   * one span never overlap. Not safe to repeat: each call adds rows.
   * @throws JobError DISK
   */
  spill(span: Span, rows: OutputRows): Promise<void>;
  /**
   * Publishes a span's rows and its rejected rows, atomically and durably; or adopts those of the attempt that
   * committed the span first. Published, rejected and filtered rows together are all rows of the span. Safe to repeat.
   * Calls for different spans may overlap.
   * @throws JobError OUTPUT_DAMAGED; DISCARDED, PLAN_CHANGED; of a table OUTPUT_REFUSED, OUTPUT_MISMATCH, DUPLICATE_KEY
   */
  commit(span: Span, output: SpanOutput): Promise<CommitOutcome>;
}

export type AttemptJson = Readonly<Record<string, unknown>>;

/** Number of commits under way at once: one part is encoded while another waits for the disk. */
export const commitConcurrency = 2;

/** The write end of a pipe: a program reads the rows in order, as they come. */
export interface RowWriter {
  /**
   * Writes the columns' names and types, before any rows. @throws JobError CONTRACT for a type that the stream cannot
   * express
   */
  begin(columns: readonly TypedColumn[]): Promise<void>;
  /** Writes rows, and resolves when more can be written. Calls never overlap. */
  write(rows: OutputRows): Promise<void>;
  /** Marks the end of the rows: a reader that does not find the mark knows that some are missing. */
  end(): Promise<void>;
}
