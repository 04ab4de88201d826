import { outputColumns } from "../../binding/contract.js";
import type { SpanOutput } from "../../columnar/types.js";
import { stateOf } from "../../publish/state.js";
import { JobError } from "../../util/errors.js";
import type { RunId, Span } from "../../plan/plan.js";
import type { AttemptFacts, CommittedBy, RunSink, RunWriter, StoredPlan } from "../port.js";
import type { Session } from "./connections.js";
import { addSpans, type CommittedSpans, committedSpansOf } from "./committed-spans.js";
import { readSpans } from "./control/spans.js";
import { encodeRows } from "./copy/copy-binary.js";
import { refuseEmptied } from "./control/emptied-table.js";
import { clearAndFinish, finishSeconds } from "./finish-run.js";
import { readRun } from "./read-run.js";
import { lockRun, lockRuns, refuseSuperseded } from "./locks.js";
import type { Mode } from "./modes/mode.js";
import { readRejects } from "./control/reject-rows.js";
import { retrying } from "./retry.js";
import type { RunTools } from "./run-tools.js";
import { commitSpan, type SpanCommit } from "./span-transaction.js";
import { findTable, fitColumns, refuseChanged, type TargetColumn } from "./table.js";
import { transact } from "./transaction.js";
import { unfitRows } from "./unfit.js";

export async function openRun(tools: RunTools, stored: StoredPlan): Promise<RunSink> {
  const { finished, spans, files } = await transact(tools, (session) => readRun(session, tools, stored));
  if (files !== undefined) {
    await countRows(tools, stored, files);
  }
  return runSink(tools, stored, { known: committedSpansOf(stored.plan, spans), finished });
}

/**
 * Counts the rows of a table that may have been emptied. @throws JobError OUTPUT_DAMAGED where rows of the run are gone
 */
async function countRows(tools: RunTools, { plan }: StoredPlan, files: string): Promise<void> {
  const { control, mode, name } = tools;
  const due = mode.writtenRows?.(plan) ?? "0";
  const doing = `checking run ${plan.runId}`;
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

function runSink(
  tools: RunTools,
  stored: StoredPlan,
  { known, finished }: { readonly known: CommittedSpans; readonly finished: boolean },
): RunSink {
  const { connections, control, retry, target, writer } = tools;
  const { plan } = stored;
  return {
    state: stateOf({ published: finished, staged: false, verdict: undefined, decision: undefined }),
    // `Sink.published` is not offered, so no plan of this target has checks or is staged.
    profile: () => Promise.resolve(undefined),
    verdict: () => Promise.resolve(undefined),
    judge: holdsNothing,
    decide: holdsNothing,
    committed: known.committed,
    get rejectedRows() {
      return [...known.spans.values()].reduce((sum, { rejected }) => sum + rejected, 0);
    },
    get committedBy() {
      return new Map([...known.spans.values()].map((one) => [one.span, one.committedBy]));
    },
    rejects: () => readRejects(connections, control, plan.runId),
    refresh: () =>
      retrying(`reading ${target}`, retry, async () => {
        addSpans(known, await transact(tools, (session) => readSpans(session, control, stored)));
      }),
    async begin(attempt) {
      const start = { stored, known, attempt };
      const columns = await retrying(`preparing ${target}`, retry, async (last) => {
        await tools.ensureControlTables(last);
        return await transact(tools, (session) => beginRun(session, tools, start), { last });
      });
      return runWriter(tools, stored, { known, begun: { columns, committedBy: { writer, ...attempt } } });
    },
    // No `tidy`: late attempts are fenced and leave nothing.
  };
}

function holdsNothing(): Promise<never> {
  return Promise.reject(new JobError("USAGE", "holding a run: output.postgres cannot do that yet"));
}

function runWriter(
  tools: RunTools,
  stored: StoredPlan,
  { known, begun }: { readonly known: CommittedSpans; readonly begun: Begun },
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

/** What this attempt writes to, and how its spans are labelled. */
interface Begun {
  readonly columns: readonly TargetColumn[];
  readonly committedBy: Omit<CommittedBy, "batchSize">;
}

/** Encodes a span before its transaction begins, which then lasts only as long as the server takes. */
function spanCommit(
  { mode }: RunTools,
  stored: StoredPlan,
  { columns, committedBy }: Begun,
  {
    span,
    output: { rows, rejects, filtered, batchSize, provider = committedBy.provider, onEncoded },
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
    committedBy: { ...committedBy, batchSize, provider },
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
  readonly known: CommittedSpans;
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
function publishesMore({ kind }: Mode, { committed }: CommittedSpans): boolean {
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
