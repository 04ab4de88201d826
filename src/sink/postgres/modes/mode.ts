import type { Plan } from "../../../plan/plan.js";
import type { PostgresMode, PostgresOutputSpec } from "../../../spec/postgres-spec.js";
import type { Session } from "../connections.js";
import type { Control } from "../control/control.js";
import type { TableName } from "../names.js";
import type { RefuseNewer } from "../newer-runs.js";
import type { TargetColumn } from "../table.js";

/** How the rows of a run get into the target: `append`, `upsert` or `replace`. Every call is in a transaction. */
export interface Mode {
  readonly kind: PostgresMode;
  /** The table that holds the rows of committed spans. */
  rowsAt(plan: Plan, state: { readonly finished: boolean }): TableName;
  /**
   * Looks whether each output column fits, and makes what is missing. Safe to repeat.
   * @throws JobError OUTPUT_MISMATCH, showing both sides
   */
  prepare(session: Session, plan: Plan, options: { readonly mayCreate: boolean }): Promise<readonly TargetColumn[]>;
  /** SQL for the number of rows that an unfinished run has put into the target, `$1` the run; not of `replace`. */
  dueRows?(plan: Plan): string;
  /**
   * Looks for what an unfinished run with committed spans needs, besides their rows.
   * @throws JobError OUTPUT_DAMAGED
   */
  lookAtOwn?(session: Session, plan: Plan): Promise<void>;
  /** Sends the rows of a span; returns how many the server took. */
  write(session: Session, rows: EncodedRows): Promise<number>;
  /** Called when every span is committed, and its rows are there. Safe to repeat. */
  finish?(session: Session, plan: Plan): Promise<void>;
  /** Tables that nobody needs any more once a run is finished. */
  surplus?(session: Session): Promise<readonly TableName[]>;
}

export interface EncodedRows {
  readonly plan: Plan;
  readonly span: number;
  /** As `encodeRows` makes them. */
  readonly chunks: readonly Uint8Array[];
  readonly columns: readonly TargetColumn[];
}

export interface ModeTools {
  readonly name: TableName;
  readonly spec: PostgresOutputSpec;
  readonly control: Control;
  readonly refuseNewer: RefuseNewer;
}
