import type { Plan } from "../../../plan/plan.js";
import type { PostgresMode, PostgresOutputSpec } from "../../../spec/output-spec.js";
import type { Session } from "../connections.js";
import type { Control } from "../control/control.js";
import type { TableName } from "../names.js";
import type { RefuseNewer } from "../other-runs/newer-runs.js";
import type { TargetColumn } from "../table.js";

/**
 * How the rows of a run are written into the target: `append`, `upsert` or `replace`. Each call is made in a
 * transaction.
 */
export interface Mode {
  readonly kind: PostgresMode;
  /** The table that holds the rows of committed spans. */
  rowsAt(plan: Plan, state: { readonly finished: boolean }): TableName;
  /**
   * Checks that each output column fits, and makes missing tables. Safe to repeat.
   * @throws JobError OUTPUT_MISMATCH that shows both sides
   */
  prepare(session: Session, plan: Plan, options: { readonly mayCreate: boolean }): Promise<readonly TargetColumn[]>;
  /** SQL for the number of rows that an unfinished run has written into the target, `$1` the run. Not for `replace`. */
  writtenRows?(plan: Plan): string;
  /** Checks the tables that an unfinished run with committed spans has for itself. @throws JobError OUTPUT_DAMAGED */
  checkOwnTables?(session: Session, plan: Plan): Promise<void>;
  /** Sends the rows of a span; returns how many the server took. */
  write(session: Session, rows: EncodedRows): Promise<number>;
  /**
   * Checks, before a run is approved, what `finish` finds wrong with the target's columns, as far as `prepare` does not.
   * Changes no row. Default: there is nothing more. @throws JobError OUTPUT_MISMATCH
   */
  checkFinish?(session: Session, plan: Plan): Promise<void>;
  /**
   * Checks that the run's own tables have what its committed spans have written, and nothing more, as far as this role
   * may read them. Not for `append`. @throws JobError OUTPUT_DAMAGED
   */
  checkRows?(session: Session, plan: Plan, doing: RowsNeeded): Promise<void>;
  /**
   * Finishes the run in the target. Called when every span is committed. Safe to repeat. Drops none of the run's own tables,
   * which a view may need: that is done after the transaction.
   */
  finish?(session: Session, plan: Plan): Promise<void>;
  /**
   * Carries out the statements of `finish` on a run without rows, as far as they change no row of the target and need
   * no lock that readers wait for. Default: there are none. @throws errors of the server
   */
  readonly rehearseFinish?:
    | {
        /** The kinds of statements on the target. */
        readonly statements: readonly ("insert" | "update" | "delete")[];
        readonly run: (session: Session, plan: Plan) => Promise<void>;
      }
    | undefined;
  /** Tables that are no longer needed once a run is finished. */
  unneededTables?(session: Session): Promise<readonly TableName[]>;
}

/** What is being done where staged rows are counted. */
export type RowsNeeded = "writing" | "judging" | "approving" | "finishing";

/** Whether the spans of a run are written into the target, and not into a staging table. */
export function writesTarget(mode: Mode): boolean {
  return mode.writtenRows !== undefined;
}

export interface EncodedRows {
  readonly plan: Plan;
  readonly span: number;
  /** A whole stream as `copyStream` makes it; it is iterated again where a transaction is repeated. */
  readonly chunks: Iterable<Uint8Array>;
  readonly columns: readonly TargetColumn[];
}

/** A table, its control tables, and how the rows of each run are written. */
export interface TargetTools {
  readonly name: TableName;
  readonly control: Control;
  readonly modeOf: (plan: Plan) => Mode;
}

export interface ModeTools {
  readonly name: TableName;
  readonly spec: PostgresOutputSpec;
  readonly control: Control;
  readonly refuseNewer: RefuseNewer;
}

/**
 * Thrown when another attempt is committing this very span, or has just committed it. The control table then tells
 * which.
 */
export class KeyTakenConcurrently extends Error {
  readonly code = "ECONNABORTED"; // as for a lost transaction: try again

  constructor(options: { cause?: unknown } = {}) {
    super("another attempt was there first", options);
  }
}
