import type { Plan, RunId } from "../../../run/plan/plan.js";
import type { PostgresMode, PostgresOutputSpec } from "../../../job/jobfile/output-spec.js";
import { type Session, type TransactionTools, retrying, transact } from "../connections.js";
import type { TableName, TargetColumn } from "../table.js";
import { type Control, type PostgresTarget, hasControlTables, makeControlTables } from "../control.js";
import type { RefuseNewer } from "../newer-runs.js";
import type { RetryTools } from "../../../base/retry.js";
import type { Spool } from "../../../base/spool.js";
import type { SpilledCopy } from "../copy-binary.js";
import type { ConnectionSettings } from "../connect.js";

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

/** What a table is opened with. */
export interface PostgresSinkOptions {
  readonly spec: PostgresOutputSpec;
  readonly settings: ConnectionSettings;
  readonly retry: RetryTools;
  /** Names this attempt among all attempts on all machines. */
  readonly writer: string;
  /** Lets a new run add its rows to those of earlier runs, in mode append. */
  readonly allowDuplicates: boolean;
  /** Lets a run publish over the rows of a newer run. */
  readonly allowOlder: boolean;
  /** Name and version of this program. */
  readonly program: string;
  /** Takes files of rows; closed with the sink. */
  readonly spool: Spool;
}

/** What the steps of a run work with: the target, its control tables, its write mode, and how a call is retried. */
export interface TableTools extends PostgresSinkOptions, TransactionTools, TargetTools, ModeTools {
  readonly target: string;
  /** The target that the spec names, as a plan pins it. */
  readonly planTarget: PostgresTarget;
  /** The spans that this attempt has seen committed, by run. */
  readonly seen: Map<RunId, Set<number>>;
  /** Warns, unless this sink has said so before: a run is prepared and read several times. */
  readonly warnOnce: (message: string) => void;
  readonly spilled: SpilledCopy;
}

/** Seconds without data that a transaction may take which checks, copies or moves all rows of a run. */
export const finishSeconds = 24 * 3600;

/** Runs `work` in a transaction, again and again while the database fails with transient errors. @throws JobError */
export async function retried<T>(
  tools: TableTools,
  doing: string,
  work: (session: Session) => Promise<T>,
  silentSeconds?: number,
): Promise<T> {
  return await retrying(doing, tools.retry, (last) => transact(tools, work, { last, silentSeconds }));
}

/** Makes the control tables where they are missing. `last`: the error of the previous try. */
export async function ensureControlTables(tools: TableTools, last?: unknown): Promise<void> {
  const { schema } = tools.control;
  if (!(await transact(tools, (session) => hasControlTables(session, schema), { last }))) {
    await transact(tools, (session) => makeControlTables(session, schema, tools.program), { last });
  }
}

/** As `retried`. The control tables are made before, where they are missing. */
export async function retriedWrite<T>(
  tools: TableTools,
  doing: string,
  work: (session: Session) => Promise<T>,
  silentSeconds?: number,
): Promise<T> {
  return await retrying(doing, tools.retry, async (last) => {
    await ensureControlTables(tools, last);
    return await transact(tools, work, { last, silentSeconds });
  });
}

/** As `retried`. Returns `none` where there are no control tables: nothing was ever done. */
export async function retriedRead<T>(
  tools: TableTools,
  doing: string,
  none: T,
  work: (session: Session) => Promise<T>,
): Promise<T> {
  const { schema } = tools.control;
  return await retried(tools, doing, async (session) =>
    (await hasControlTables(session, schema)) ? await work(session) : none,
  );
}
