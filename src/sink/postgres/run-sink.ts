import { outputColumns } from "../../binding/contract.js";
import type { SpanOutput } from "../../columnar/types.js";
import { JobError, messageOf } from "../../util/errors.js";
import { splitRunId } from "../../plan/identity.js";
import type { Plan, RunId, Span } from "../../plan/plan.js";
import { spanCount } from "../../plan/spans.js";
import type { AttemptFacts, Maker, RunSink, RunWriter, StoredPlan } from "../port.js";
import type { Session } from "./connections.js";
import { type CommittedSpan, readSpans } from "./control/spans.js";
import type { Control } from "./control/control.js";
import { encodeRows } from "./copy/copy-binary.js";
import { changedFiles, refuseEmptied } from "./control/emptied-table.js";
import { clearAbandonedRuns } from "./abandoned-runs.js";
import { readRun } from "./read-run.js";
import { lockRun, lockRuns, refuseSuperseded } from "./locks.js";
import type { Mode } from "./modes/mode.js";
import { quoteTable, showTable, type TableName } from "./names.js";
import type { RefuseNewer } from "./newer-runs.js";
import { readRejects } from "./control/reject-rows.js";
import type { RetryTools } from "../../util/retry.js";
import { retrying } from "./retry.js";
import { commitSpan, type SpanCommit } from "./span-transaction.js";
import { findTable, fitColumns, refuseChanged, type TargetColumn } from "./table.js";
import { transact, type TransactionTools } from "./transaction.js";
import { unfitRows } from "./unfit.js";

export interface RunTools extends TransactionTools {
  /** Name of the target in messages. */
  readonly target: string;
  readonly name: TableName;
  readonly control: Control;
  readonly mode: Mode;
  readonly refuseNewer: RefuseNewer;
  readonly retry: RetryTools;
  /** Names this attempt among all attempts on all machines. */
  readonly writer: string;
}

/** Limit of a check of all rows of a run, and of moving them where a rename is not enough. */
export const finishSeconds = 24 * 3600;

/** What this attempt knows of a run's spans. */
interface Known {
  readonly committed: Uint8Array;
  readonly spans: Map<number, CommittedSpan>;
}

export async function openRun(tools: RunTools, stored: StoredPlan): Promise<RunSink> {
  const { finished, spans, files } = await transact(tools, (session) => readRun(session, tools, stored));
  if (files !== undefined) {
    await countRows(tools, stored, files);
  }
  return runSink(tools, stored, { known: knownOf(stored.plan, spans), finished });
}

/**
 * Counts the rows of a table that may have been emptied. @throws JobError OUTPUT_DAMAGED where rows of the run are gone
 */
async function countRows(tools: RunTools, { plan }: StoredPlan, files: string): Promise<void> {
  const { control, mode, name } = tools;
  const due = mode.writtenRows?.(plan) ?? "0";
  const doing = `looking at run ${plan.runId}`;
  try {
    await transact(tools, (session) => refuseEmptied(session, { name, control, plan, doing, due, files }), {
      silentSeconds: finishSeconds,
    });
  } catch (error) {
    // An attempt that finishes the run meanwhile has counted the rows, and removes what they are counted by.
    if (!(await transact(tools, (session) => control.isFinished(session, plan.runId)))) {
      throw error;
    }
  }
}

function knownOf(plan: Plan, spans: readonly CommittedSpan[]): Known {
  const known: Known = { committed: new Uint8Array(spanCount(plan)), spans: new Map() };
  addSpans(known, spans);
  return known;
}

function addSpans({ committed, spans }: Known, found: readonly CommittedSpan[]): void {
  for (const one of found) {
    committed[one.span] = 1;
    spans.set(one.span, one);
  }
}

function runSink(
  tools: RunTools,
  stored: StoredPlan,
  { known, finished }: { readonly known: Known; readonly finished: boolean },
): RunSink {
  const { connections, control, retry, target, writer } = tools;
  const { plan } = stored;
  return {
    finished,
    committed: known.committed,
    get rejectedRows() {
      return [...known.spans.values()].reduce((sum, { rejected }) => sum + rejected, 0);
    },
    get makers() {
      return new Map([...known.spans.values()].map((one) => [one.span, one.maker]));
    },
    rejects: () => readRejects(connections, control, plan.runId),
    refresh: () =>
      retrying(`looking at ${target}`, retry, async () => {
        addSpans(known, await transact(tools, (session) => readSpans(session, control, stored)));
      }),
    async begin(attempt) {
      const start = { stored, known, attempt };
      const columns = await retrying(`preparing ${target}`, retry, (last) =>
        transact(tools, (session) => beginRun(session, tools, start), { last }),
      );
      return runWriter(tools, stored, { known, begun: { columns, maker: { writer, ...attempt } } });
    },
    // No `tidy`: late attempts are fenced and leave nothing.
  };
}

function runWriter(
  tools: RunTools,
  stored: StoredPlan,
  { known, begun }: { readonly known: Known; readonly begun: Begun },
): RunWriter {
  return {
    unfit: (rows) => unfitRows(rows, begun.columns),
    async commit(span, output) {
      const commit = spanCommit(tools, stored, begun, { span, output });
      const { outcome, committed } = await retrying(
        `writing span ${span.index} to ${tools.target}`,
        tools.retry,
        (last) => commitSpan(tools, commit, last),
      );
      addSpans(known, [committed]);
      return outcome;
    },
    finish: () => clearAndFinish(tools, stored),
    failed: (error) => recordFailure(tools, stored.plan.runId, error),
  };
}

/** What this attempt writes to, and as which maker. */
interface Begun {
  readonly columns: readonly TargetColumn[];
  readonly maker: Omit<Maker, "batchSize">;
}

/** Encodes a span before its transaction begins, which then lasts only as long as the server takes. */
function spanCommit(
  { mode }: RunTools,
  stored: StoredPlan,
  { columns, maker }: Begun,
  {
    span,
    output: { rows, rejects, filtered, batchSize, provider = maker.provider, onEncoded },
  }: { readonly span: Span; readonly output: SpanOutput },
): SpanCommit {
  const types = columns.map(({ type }) => type);
  const chunks = encodeRows(rows.columns, types, rows.rowCount);
  onEncoded?.();
  const encoded = { plan: stored.plan, span: span.index, chunks, columns };
  return {
    stored,
    span,
    rowCount: rows.rowCount,
    rejects,
    filtered,
    maker: { ...maker, batchSize, provider },
    table: columns[0]?.table ?? 0,
    write: (session) => mode.write(session, encoded),
    async refuseChanged(session) {
      const name = mode.rowsAt(stored.plan, { finished: false });
      if ((await findTable(session, name)) !== undefined) {
        await refuseChanged(session, name, columns); // for a table that is gone, the server has reported it
      }
    },
  };
}

interface Beginning {
  readonly stored: StoredPlan;
  readonly known: Known;
  readonly attempt: AttemptFacts;
}

async function beginRun(
  session: Session,
  tools: RunTools,
  { stored, known, attempt }: Beginning,
): Promise<readonly TargetColumn[]> {
  const { control, mode, writer } = tools;
  const { runId } = stored.plan;
  await lockRuns(session, runId, { shared: true });
  await refuseSuperseded(session, control, runId);
  await lockRun(session, runId);
  if (publishesMore(mode, known) && !(await control.isFinished(session, runId))) {
    await tools.refuseNewer(session, stored.plan); // before anything is scored in vain
  }
  const columns = await prepareRun(session, tools, stored, { mayCreate: known.spans.size === 0 });
  await session.query({
    text: `INSERT INTO ${control.table("attempts")} (run_id, writer, program) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
    values: [runId, writer, attempt.program],
  });
  return columns;
}

/** Whether rows of this run can still replace others: `replace` swaps all of them in at the end. */
function publishesMore({ kind }: Mode, { committed }: Known): boolean {
  return kind === "replace" || (kind === "upsert" && committed.includes(0));
}

/** Prepares the tables of a run, and returns the columns that rows are written to. */
export async function prepareRun(
  session: Session,
  { control, mode }: Pick<RunTools, "control" | "mode">,
  { plan }: StoredPlan,
  options: { readonly mayCreate: boolean },
): Promise<readonly TargetColumn[]> {
  if (!(await control.isFinished(session, plan.runId))) {
    return await mode.prepare(session, plan, options);
  }
  // Another attempt has just finished the run: this one finds each span committed.
  const name = mode.rowsAt(plan, { finished: true });
  const found = await findTable(session, name);
  return found === undefined ? [] : fitColumns(name, found, outputColumns(plan.contract));
}

async function clearAndFinish(tools: RunTools, stored: StoredPlan): Promise<void> {
  const { control, retry, target } = tools;
  const { runId } = stored.plan;
  if (splitRunId(runId).number > 1) {
    await retrying(`clearing up after runs before ${runId}`, retry, (last) =>
      transact(tools, (session) => clearAbandonedRuns(session, control, runId), { last }),
    );
  }
  await retrying(`finishing ${target}`, retry, (last) =>
    transact(tools, (session) => finishRun(session, tools, stored), { last, silentSeconds: finishSeconds }),
  );
  await dropUnneededTables(tools);
}

async function finishRun(session: Session, tools: RunTools, stored: StoredPlan): Promise<void> {
  const { control, mode, name, writer } = tools;
  const { plan } = stored;
  await lockRuns(session, plan.runId, { shared: true });
  await lockRun(session, plan.runId);
  if (await control.isFinished(session, plan.runId)) {
    return;
  }
  await refuseSuperseded(session, control, plan.runId);
  const now = knownOf(plan, await readSpans(session, control, stored));
  const missing = now.committed.indexOf(0);
  if (missing >= 0) {
    throw new JobError(
      "OUTPUT_DAMAGED",
      `finishing run ${plan.runId}: span ${missing} of ${spanCount(plan)} is not committed any more`,
      { hint: "somebody changed the control tables under the run; run the same command again" },
    );
  }
  const due = mode.writtenRows?.(plan);
  const files = due === undefined ? undefined : await changedFiles(session, { name, control, plan });
  if (due !== undefined && files !== undefined) {
    await refuseEmptied(session, { name, control, plan, doing: `finishing run ${plan.runId}`, due, files });
  }
  await mode.finish?.(session, plan);
  await session.query({
    text: `INSERT INTO ${control.table("finishes")} (run_id, writer) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
    values: [plan.runId, writer],
  });
}

/**
 * Drops tables that are no longer needed, after the finish: a session that reads one, or a view of one, must neither
 * fail the finish nor make readers of the target wait. The next finish tries again.
 */
async function dropUnneededTables(tools: RunTools): Promise<void> {
  const { mode, warn } = tools;
  try {
    for (const name of await transact(tools, (session) => mode.unneededTables?.(session) ?? Promise.resolve([]))) {
      await transact(tools, (session) => session.query(`DROP TABLE IF EXISTS ${quoteTable(name)}`)).catch(
        (error: unknown) => {
          warn(`table ${showTable(name)} is no longer needed, and could not be dropped: ${messageOf(error)}`);
        },
      );
    }
  } catch (error) {
    warn(`tables that are no longer needed could not be dropped: ${messageOf(error)}`);
  }
}

/**
 * Records an error for people who look at the control tables. An attempt that cannot reach them reports it elsewhere.
 */
async function recordFailure(tools: RunTools, runId: RunId, { code, message }: JobError): Promise<void> {
  if (code === "DATABASE") {
    return;
  }
  const { control, writer } = tools;
  await transact(tools, (session) =>
    session.query({
      text: `INSERT INTO ${control.table("errors")} (run_id, writer, code, message) VALUES ($1, $2, $3, $4)`,
      values: [runId, writer, code, message.replaceAll("\u0000", "\u2400")],
    }),
  ).catch(() => undefined); // the attempt ends with the error that was to be written down
}
