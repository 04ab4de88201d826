import { outputColumns } from "../../binding/contract.js";
import type { OutputRows, SpanOutput } from "../../columnar/types.js";
import { JobError } from "../../util/errors.js";
import type { Plan, Span } from "../../plan/plan.js";
import { spanCount } from "../../plan/spans.js";
import type { Opening, RunSink, RunWriter, StoredPlan } from "../port.js";
import type { AttemptFacts, CommittedBy } from "../../publish/span-record.js";
import { openAnswers } from "./answers.js";
import { type Session, transact } from "./connections.js";
import { type CommittedSpan, readSpans, recordSpansGone, refuseEmptied } from "./control/spans.js";
import { lastSwapNumber, refuseSwappedOut } from "./control/swaps.js";
import { type Charset, knowing, openCharset, storableRejects, unfitRows } from "./copy/unfit-values.js";
import { copyStream, encodeRows } from "./copy/copy-binary.js";
import type { SpilledCopy } from "./copy/spilled-copy.js";
import { finishSeconds, retried, retriedWrite, type RunTools } from "./run-tools.js";
import { finishAndClear, runDecisions } from "./finish-run.js";
import { readRun } from "./read-run.js";
import { lockRun, lockRuns, refuseStopped } from "./locks.js";
import { writesTarget } from "./modes/mode.js";
import { readTable } from "./other-runs/read-rows.js";
import { readRejects } from "./control/reject-rows.js";
import { retrying } from "./failures.js";
import { commitSpan, type SpanCommit } from "./span-transaction.js";
import { findTable, fitColumns, type TargetColumn } from "./table.js";
import { requirePlannedTarget } from "./target.js";

export async function openRun(tools: RunTools, stored: StoredPlan, how?: Opening): Promise<RunSink> {
  const { state, spans, files } = await transact(tools, (session) => readRun(session, tools, stored, how));
  if (files !== undefined) {
    await countRows(tools, stored.plan, files);
  }
  return runSink(tools, stored, { known: bySpan(spans), state });
}

/**
 * Counts the rows of a table that may have been emptied. @throws JobError OUTPUT_DAMAGED where rows of the run are gone
 */
async function countRows(tools: RunTools, plan: Plan, files: string): Promise<void> {
  const { control } = tools;
  const due = tools.modeOf(plan).writtenRows?.(plan) ?? "0";
  const doing = `checking run ${plan.runId}`;
  try {
    await transact(tools, (session) => refuseEmptied(session, tools, plan, { doing, due, files }), {
      silentSeconds: finishSeconds,
    });
  } catch (error) {
    // An attempt that finishes the run at the same time has counted the rows, and removes the tables that they are
    // counted from.
    if (!(await transact(tools, (session) => control.isFinished(session, plan.runId)))) {
      throw error;
    }
  }
}

function runSink(
  tools: RunTools,
  stored: StoredPlan,
  { known, state }: { readonly known: Map<number, CommittedSpan> } & Pick<RunSink, "state">,
): RunSink {
  const { connections, control, target } = tools;
  const { plan } = stored;
  const remembering: Remembering = async (work) => {
    try {
      return await work();
    } catch (error) {
      if (error instanceof JobError && error.code === "OUTPUT_DAMAGED") {
        await recordSpansGone(tools, plan.runId, known.keys());
      }
      throw error;
    }
  };
  const decisions = runDecisions(tools, plan);
  return {
    ...stored,
    state,
    ...decisions,
    profile: () => remembering(decisions.profile),
    create: (kind, value) => remembering(() => decisions.create(kind, value)),
    answers: () => openAnswers(tools, plan),
    read: (key) => readTable(tools, plan, key),
    spans: known,
    rejects: () => readRejects(connections, control, plan.runId),
    refresh: () =>
      remembering(async () => {
        const spans = await retried(tools, `reading ${target}`, (session) => readSpans(session, control, stored));
        bySpan(spans, known);
      }),
    async begin(attempt) {
      const begun = await remembering(() =>
        retriedWrite(tools, `preparing ${target}`, (session) => beginRun(session, tools, stored.plan, known, attempt)),
      );
      return runWriter(tools, stored, { known, begun, remembering });
    },
  };
}

/** Adds committed spans to what is known of a run. */
function bySpan(spans: readonly CommittedSpan[], known = new Map<number, CommittedSpan>()): Map<number, CommittedSpan> {
  spans.forEach((row) => known.set(row.span, row));
  return known;
}

/** Does work; if control rows turn out to be gone, remembers which spans this attempt has seen committed. */
type Remembering = <T>(work: () => Promise<T>) => Promise<T>;

function runWriter(
  tools: RunTools,
  stored: StoredPlan,
  {
    known,
    begun,
    remembering,
  }: { readonly known: Map<number, CommittedSpan>; readonly begun: Begun; readonly remembering: Remembering },
): RunWriter {
  const { charset } = begun;
  return {
    unfit: async (rows) =>
      charset === undefined
        ? unfitRows(rows, begun.columns)
        : await retrying(`reading ${tools.target}`, tools.retry, () =>
            knowing(charset, (unknown) => unfitRows(rows, begun.columns, (text) => charset.lacking(text, unknown))),
          ),
    spill: (span, rows) => spillRows(tools.spilled, begun, span, rows),
    async commit(span, { rejects: rejected, ...rows }) {
      const rejects =
        charset === undefined
          ? rejected
          : await retrying(`reading ${tools.target}`, tools.retry, () => storableRejects(charset, rejected));
      const commit = spanCommit(tools, stored, begun, span, { ...rows, rejects });
      const { outcome, committed } = await remembering(() =>
        retrying(`writing span ${span.index} to ${tools.target}`, tools.retry, (last) =>
          commitSpan(tools, commit, last),
        ),
      );
      bySpan([committed], known);
      await tools.spilled.drop(span);
      return outcome;
    },
    finish: (attempt) => remembering(() => finishAndClear(tools, stored, attempt)),
  };
}

/** What this attempt writes to, and how its spans are labelled. */
interface Begun {
  readonly columns: readonly TargetColumn[];
  readonly maker: Omit<CommittedBy, "batchSize">;
  /** The number of the target's last swap when the attempt began. Undefined if the run stages its rows. */
  readonly lastSwap: string | undefined;
  /** Undefined if the database can hold every text. */
  readonly charset: Charset | undefined;
}

/** Encodes rows of a span that is not complete. */
async function spillRows(
  spilled: SpilledCopy,
  { columns }: Begun,
  span: Span,
  { columns: rows, rowCount }: OutputRows,
): Promise<void> {
  const types = columns.map(({ type }) => type);
  await spilled.add(span, { rowCount, chunks: encodeRows(rows, types, rowCount) });
}

/** Encodes a span before its transaction begins, which then lasts only as long as the server takes. */
function spanCommit(
  { spilled }: RunTools,
  stored: StoredPlan,
  { columns, maker, lastSwap }: Begun,
  span: Span,
  output: SpanOutput,
): SpanCommit {
  const { rows, rejects, filtered, batchSize, provider = maker.provider, profile, onEncoded } = output;
  const types = columns.map(({ type }) => type);
  const last = [...encodeRows(rows.columns, types, rows.rowCount)];
  onEncoded?.();
  return {
    stored,
    span,
    rows: { plan: stored.plan, span: span.index, chunks: copyStream(spilled.chunksOf(span), last), columns },
    rejects,
    due: {
      span: span.index,
      rows: spilled.rowsOf(span) + rows.rowCount,
      rejected: rejects.length,
      filtered,
      maker: { ...maker, batchSize, provider },
      table: columns[0]?.table ?? 0,
    },
    profile,
    lastSwap,
  };
}

async function beginRun(
  session: Session,
  tools: RunTools,
  plan: Plan,
  known: ReadonlyMap<number, CommittedSpan>,
  attempt: AttemptFacts,
): Promise<Begun> {
  const { control, writer, name } = tools;
  const { runId } = plan;
  await lockRuns(session, runId, { shared: true });
  await refuseStopped(session, control, plan);
  await lockRun(session, runId);
  await refuseOlder(session, tools, plan, known.size); // before anything is scored in vain
  // Read before the check below: each commit of a span finds swaps after this number, and the check finds earlier ones.
  const lastSwap = writesTarget(tools.modeOf(plan)) ? await lastSwapNumber(session, control, name) : undefined;
  await refuseSwappedOut(session, tools, plan);
  const columns = await prepareRun(session, tools, plan, { mayCreate: known.size === 0 });
  await session.query({
    text: `INSERT INTO ${control.table("attempts")} (run_id, writer, program) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
    values: [runId, writer, attempt.program],
  });
  const charset = await openCharset(session, tools.connections);
  return { columns, lastSwap, charset, maker: { writer, ...attempt } };
}

/**
 * Refuses an unfinished run, of which so many spans are committed, that can still replace rows of a newer one: in `replace`, and of a staged run, all of its rows
 * do at the end. @throws JobError OUTPUT_NEWER
 */
export async function refuseOlder(
  session: Session,
  { control, modeOf, refuseNewer }: RunTools,
  plan: Plan,
  committed: number,
): Promise<void> {
  const { kind } = modeOf(plan);
  const publishesMore = kind === "replace" || (kind === "upsert" && (plan.staged || committed < spanCount(plan)));
  if (publishesMore && !(await control.isFinished(session, plan.runId))) {
    await refuseNewer(session, plan);
  }
}

/** Prepares the tables of a run, and returns the columns that rows are written to. */
export async function prepareRun(
  session: Session,
  { control, modeOf, planTarget }: RunTools,
  plan: Plan,
  options: { readonly mayCreate: boolean },
): Promise<readonly TargetColumn[]> {
  const mode = modeOf(plan);
  if (!(await control.isFinished(session, plan.runId))) {
    requirePlannedTarget(plan, planTarget, "preparing");
    return await mode.prepare(session, plan, options);
  }
  // Another attempt has just finished the run: this one finds each span committed.
  const name = mode.rowsAt(plan, { finished: true });
  const found = await findTable(session, name);
  return found === undefined ? [] : fitColumns(name, found, outputColumns(plan.contract));
}
