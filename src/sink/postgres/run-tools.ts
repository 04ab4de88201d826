import type { RetryTools } from "../../util/retry.js";
import { type Session, transact, type TransactionTools } from "./connections.js";
import { hasControlTables, makeControlTables } from "./control/schema.js";
import type { RowSpool, SpilledCopy } from "./copy/spilled-copy.js";
import { retrying } from "./failures.js";
import type { ModeTools, TargetTools } from "./modes/mode.js";
import type { PostgresTarget } from "./target.js";

/** What the steps of a run work with: the target, its control tables, its write mode, and how a call is retried. */
export interface RunTools extends TransactionTools, TargetTools, ModeTools {
  /** Name of the target in messages. */
  readonly target: string;
  /** The target that the spec names, as a plan pins it. */
  readonly planTarget: PostgresTarget;
  /** Lets a new run add its rows to those of earlier runs, in mode append. */
  readonly allowDuplicates: boolean;
  /** Lets a run publish over the rows of a newer run. */
  readonly allowOlder: boolean;
  /** Warns, unless this sink has said so before: a run is prepared and read several times. */
  readonly warnOnce: (message: string) => void;
  readonly retry: RetryTools;
  /** Name and version of this program. */
  readonly program: string;
  /** Rows of incomplete spans. */
  readonly spilled: SpilledCopy;
  /** Takes files of rows. */
  readonly spool: RowSpool;
  /** Names this attempt among all attempts on all machines. */
  readonly writer: string;
}

/** Seconds without data that a transaction may take which checks, copies or moves all rows of a run. */
export const finishSeconds = 24 * 3600;

/** Runs `work` in a transaction, again and again while the database fails with transient errors. @throws JobError */
export async function retried<T>(
  tools: RunTools,
  doing: string,
  work: (session: Session) => Promise<T>,
  silentSeconds?: number,
): Promise<T> {
  return await retrying(doing, tools.retry, (last) => transact(tools, work, { last, silentSeconds }));
}

/** Makes the control tables where they are missing. `last`: the error of the previous try. */
export async function ensureControlTables(tools: RunTools, last?: unknown): Promise<void> {
  const { schema } = tools.control;
  if (!(await transact(tools, (session) => hasControlTables(session, schema), { last }))) {
    await transact(tools, (session) => makeControlTables(session, schema, tools.program), { last });
  }
}

/** As `retried`. The control tables are made before, where they are missing. */
export async function retriedWrite<T>(
  tools: RunTools,
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
  tools: RunTools,
  doing: string,
  none: T,
  work: (session: Session) => Promise<T>,
): Promise<T> {
  const { schema } = tools.control;
  return await retried(tools, doing, async (session) =>
    (await hasControlTables(session, schema)) ? await work(session) : none,
  );
}
