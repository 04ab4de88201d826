import { quoteName } from "../../base/sql.js";
import { recordedSpending, type RecordedSpending } from "../../run/lifecycle/recorded-run.js";
import { outputColumns } from "../../models/binding/contract.js";
import type { SpanOutput } from "../../columns/types.js";
import { JobError } from "../../base/errors.js";
import type { Plan, RunId, Span } from "../../run/plan/plan.js";
import { spanCount } from "../../run/plan/spans.js";
import type { AttemptJson, CommitOutcome, Opening, RunSink, StoredPlan } from "../target.js";
import type { AttemptFacts, CommittedBy } from "../../run/lifecycle/span-record.js";
import { openAnswerTable } from "./answers.js";
import { classifyFailure, isMissingTable, lock, retrying, type Session, transact } from "./connections.js";
import {
  changedFiles,
  committedProfile,
  type CommittedSpan,
  committedSpan,
  insertRejects,
  insertSpan,
  selectRejects,
  readSpans,
  recordSpansGone,
  refuseEmptied,
  refuseSpansGone,
  spanColumns,
  type SpanToInsert,
  spansMissing,
} from "./spans.js";
import { hasRollback, lastSwapNumber, refuseSwappedOut, swapSince } from "./swaps.js";
import { unfitRows } from "./unfit-values.js";
import { copyStream, encodeRows } from "./copy-binary.js";
import {
  finishSeconds,
  KeyTakenConcurrently,
  retried,
  retriedWrite,
  type RowsNeeded,
  type TableTools,
  type TargetTools,
  writesTarget,
} from "./modes/mode.js";
import {
  type Control,
  createDocument,
  damagedRun,
  isFinished,
  lockRun,
  lockRuns,
  plannedTarget,
  selectDocument,
  refuseStoppedRun,
  refuseSuperseded,
  requirePlannedTarget,
} from "./control.js";
import { readTable } from "./read-rows.js";
import {
  findTable,
  fitColumns,
  type FoundTable,
  quoteTable,
  refuseChanged,
  showTable,
  type TableName,
  type TargetColumn,
} from "./table.js";
import { byChecks, type Decision, requireApproved, type RunState } from "../../run/lifecycle/lifecycle.js";
import {
  decisionDocument,
  type DocumentKind,
  type PlannedRun,
  readState,
  verdictDocument,
} from "../../stores/ledger.js";
import { DatabaseError } from "pg";
import { runProfileOf, runProfileText } from "../../run/lifecycle/profile-text.js";
import { dropTables, tablesOfClosedRuns, tablesOfOthers, tablesToDrop } from "./own-tables.js";
import type { KeyCounts } from "../../checks/rules/spec.js";
import { sha256Of } from "../../base/sha256.js";

export async function openRun(tools: TableTools, stored: StoredPlan, how?: Opening): Promise<RunSink> {
  const { connections, control, retry, spilled, target } = tools;
  const { plan } = stored;
  const { runId } = plan;
  const { state, spans, files } = await transact(tools, (session) => readRun(session, tools, stored, how));
  if (files !== undefined) {
    await countRows(tools, plan, files);
  }
  const known = new Map<number, CommittedSpan>();
  const know = (rows: Iterable<CommittedSpan>): void => {
    for (const row of rows) {
      known.set(row.span, row);
      seenOf(tools, runId).add(row.span);
    }
  };
  know(spans);

  return {
    ...stored,
    state,
    spans: known,
    read: (key) => readTable(tools, plan, key),
    answers: () => openAnswerTable(tools, plan),
    rejects: () => selectRejects(connections, control, runId),
    refresh: () =>
      remembering(tools, runId, async () => {
        know(await retried(tools, `reading ${target}`, (session) => readSpans(session, control, stored)));
      }),
    profile: () =>
      remembering(tools, runId, () => retrying(`reading ${target}`, retry, () => committedProfile(tools, plan))),
    countKeys: (columns) =>
      retried(
        tools,
        `counting the keys of run ${runId}`,
        (session) => countKeys(session, tools.modeOf(plan).rowsAt(plan, { finished: false }), columns),
        finishSeconds,
      ),
    async begin(attempt) {
      const begun = await remembering(tools, runId, () =>
        retriedWrite(tools, `preparing ${target}`, (session) => beginRun(session, tools, plan, known, attempt)),
      );
      const types = begun.columns.map(({ type }) => type);
      return {
        unfit: (rows) => Promise.resolve(unfitRows(rows, begun.columns)),
        spill: (span, { columns, rowCount }) =>
          spilled.add(span, { rowCount, chunks: encodeRows(columns, types, rowCount) }),
        async commit(span, output) {
          // Encoded before its transaction begins, which then lasts only as long as the server takes.
          const commit = spanCommit(tools, stored, begun, span, output);
          const { outcome, committed } = await remembering(tools, runId, () =>
            retrying(`writing span ${span.index} to ${target}`, retry, (last) => commitSpan(tools, commit, last)),
          );
          know([committed]);
          await spilled.drop(span);
          return outcome;
        },
      };
    },
    async finish(attempt) {
      const isPublished = state.kind === "published";
      const decision =
        isPublished || !plan.staged
          ? undefined
          : await retried(tools, `reading ${target}`, (session) =>
              selectDocument(session, control, runId, decisionDocument),
            );
      const isDiscarded = decision?.kind === "discarded";
      if (isPublished || isDiscarded) {
        await dropTables(tools, (session) => tablesToDrop(session, control, plan));
        await warnOfKeptTables(tools, plan);
      } else {
        await remembering(tools, runId, () => finishAndClear(tools, stored, attempt));
      }
      return isDiscarded ? "discarded" : "published";
    },
  };
}

function seenOf({ seen }: TableTools, runId: RunId): Set<number> {
  const spans = seen.get(runId) ?? new Set();
  seen.set(runId, spans);
  return spans;
}

async function remembering<T>(tools: TableTools, runId: RunId, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof JobError && error.code === "OUTPUT_DAMAGED") {
      await recordSpansGone(tools, runId, seenOf(tools, runId));
    }
    throw error;
  }
}

/** Creates a document of a planned run unless there is one. @throws JobError as `Ledger.create` */
export async function createOfRun<T extends object>(
  tools: TableTools,
  { plan }: PlannedRun,
  kind: DocumentKind<T>,
  value: T,
): Promise<T> {
  const { runId } = plan;
  const decision = isDecision(value) ? value : undefined;
  const work = async (session: Session): Promise<T> => {
    await (decision === undefined
      ? requireSpans(session, tools, plan, "judging")
      : admitDecision(session, tools, plan, decision));
    return await createDocument(session, tools, runId, kind, value);
  };
  const silentSeconds = decision === undefined || decision.kind === "approved" ? finishSeconds : undefined;
  return await remembering(tools, runId, () =>
    retried(tools, `writing the ${kind.name} on ${runId}`, work, silentSeconds),
  );
}

function isDecision(document: object): document is Decision {
  return "kind" in document;
}

async function countRows(tools: TableTools, plan: Plan, files: string): Promise<void> {
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
    if (!(await transact(tools, (session) => isFinished(session, control, plan.runId)))) {
      throw error;
    }
  }
}

interface Begun {
  readonly columns: readonly TargetColumn[];
  readonly maker: Omit<CommittedBy, "batchSize">;
  /** The number of the target's last swap when the attempt began. Undefined if the run stages its rows. */
  readonly lastSwap: string | undefined;
}

function spanCommit(
  { spilled }: TableTools,
  stored: StoredPlan,
  { columns, maker, lastSwap }: Begun,
  span: Span,
  output: SpanOutput,
): SpanToInsert {
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
  tools: TableTools,
  plan: Plan,
  known: ReadonlyMap<number, CommittedSpan>,
  attempt: AttemptFacts,
): Promise<Begun> {
  const { control, writer, name } = tools;
  const { runId } = plan;
  await lockRuns(session, runId, { shared: true });
  await refuseStoppedRun(session, control, plan);
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
  return { columns, lastSwap, maker: { writer, ...attempt } };
}

/**
 * Refuses an unfinished run, of which so many spans are committed, that can still replace rows of a newer one: in `replace`, and of a staged run, all of its rows
 * do at the end. @throws JobError OUTPUT_NEWER
 */
export async function refuseOlder(
  session: Session,
  { control, modeOf, refuseNewer }: TableTools,
  plan: Plan,
  committed: number,
): Promise<void> {
  const { kind } = modeOf(plan);
  const publishesMore = kind === "replace" || (kind === "upsert" && (plan.staged || committed < spanCount(plan)));
  if (publishesMore && !(await isFinished(session, control, plan.runId))) {
    await refuseNewer(session, plan);
  }
}

/** Prepares the tables of a run, and returns the columns that rows are written to. */
export async function prepareRun(
  session: Session,
  { control, modeOf, planTarget }: TableTools,
  plan: Plan,
  options: { readonly mayCreate: boolean },
): Promise<readonly TargetColumn[]> {
  const mode = modeOf(plan);
  if (!(await isFinished(session, control, plan.runId))) {
    requirePlannedTarget(plan, planTarget, "preparing");
    return await mode.prepare(session, plan, options);
  }
  // Another attempt has just finished the run: this one finds each span committed.
  const name = mode.rowsAt(plan, { finished: true });
  const found = await findTable(session, name);
  return found === undefined ? [] : fitColumns(name, found, outputColumns(plan.contract));
}

interface ReadRun {
  readonly state: RunState;
  readonly spans: readonly CommittedSpan[];
  /** The digest of the table's files, where they are others than those that took the spans: see `changedFiles`. */
  readonly files: string | undefined;
}

async function readRun(
  session: Session,
  tools: TargetTools,
  stored: StoredPlan,
  { toDiscard }: Opening = { toDiscard: false },
): Promise<ReadRun> {
  const { control } = tools;
  const { plan } = stored;
  const mode = tools.modeOf(plan);
  let spans = await readSpans(session, control, stored);
  let finished = await isFinished(session, control, plan.runId);
  if (finished && spans.length < spanCount(plan)) {
    spans = await readSpans(session, control, stored); // another attempt may have finished it between both statements
  }
  let name = mode.rowsAt(plan, { finished });
  let found = await findTable(session, name);
  if (found === undefined && !finished) {
    // Another attempt may have finished the run between two statements, and moved the rows.
    finished = await isFinished(session, control, plan.runId);
    name = mode.rowsAt(plan, { finished });
    found = await findTable(session, name);
  }
  const state = await readState(plan, finished, (kind) => selectDocument(session, control, plan.runId, kind));
  const target = plannedTarget(plan);
  const isOver = state.kind === "discarded" || state.kind === "superseded";
  if (isOver || (toDiscard && !finished)) {
    return { state, spans, files: undefined }; // its rows may be gone
  }
  // A spec that names another target is reported when it is compared with the plan.
  if (target.table === showTable(tools.name) && target.mode === mode.kind) {
    await refuseLost(session, control, plan, { name, found, finished, spans, isHeld: state.kind === "held" });
    if (!finished) {
      const isShared = mode.kind === "append" && writesTarget(mode);
      await refuseSpansGone(session, control, plan.runId, isShared ? showTable(name) : undefined);
    }
    if (finished && spans.length < spanCount(plan)) {
      throw damagedRun(
        plan.runId,
        `reading ${control.schema}.spans: run ${plan.runId} is finished, and only ${spans.length} of its ${spanCount(plan)} spans are there`,
        "the predictions are complete, and the control tables were changed: restore them from a backup",
      );
    }
    if (!finished && spans.length > 0) {
      await refuseSwappedOut(session, tools, plan);
      await checkOwnTables(session, tools, plan);
      const files = writesTarget(mode) ? await changedFiles(session, tools, plan) : undefined;
      return { state, spans, files };
    }
  }
  const rolledBack = finished && mode.kind === "replace" && (await hasRollback(session, control, plan.runId));
  return { state: rolledBack ? { kind: "published", rolledBack } : state, spans, files: undefined };
}

/** Ignores what is missing when another attempt has finished the run. */
async function checkOwnTables(session: Session, { control, modeOf }: TargetTools, plan: Plan): Promise<void> {
  try {
    await modeOf(plan).checkOwnTables?.(session, plan);
  } catch (error) {
    if (!(error instanceof JobError)) {
      throw error; // the transaction is aborted, and answers nothing more
    }
    await refuseStoppedRun(session, control, plan);
    if (!(await isFinished(session, control, plan.runId))) {
      throw error;
    }
  }
}

/**
 * To make a table anew that is gone, or to take another one for it, would lose the rows of committed spans silently. Of
 * a finished run only the table's existence is checked: its rows may have changed since.
 */
async function refuseLost(
  session: Session,
  control: Control,
  plan: Plan,
  {
    name,
    found,
    finished,
    spans,
    isHeld,
  }: {
    readonly name: TableName;
    readonly found: FoundTable | undefined;
    readonly finished: boolean;
    readonly spans: readonly CommittedSpan[];
    readonly isHeld: boolean;
  },
): Promise<void> {
  const lost = spans.find(({ table }) => found === undefined || (!finished && table !== found.oid));
  if (lost === undefined) {
    return;
  }
  const { runId } = plan;
  if (!finished && found !== undefined && (await isFinished(session, control, runId))) {
    return; // another attempt has finished the run, and a later one may have replaced the table
  }
  await refuseStoppedRun(session, control, plan); // a later run may have removed the table
  const doing = `checking table ${showTable(name)}: run ${runId} has rows in it, and it is gone`;
  const repair = isHeld ? "restore it, or discard the run" : "restore it";
  if (found === undefined) {
    throw damagedRun(runId, doing, repair);
  }
  const isSwapped = (await swapSince(session, control, { runId, target: name })) !== undefined;
  const since = isSwapped ? ", committed_at = clock_timestamp()" : "";
  const moved = `UPDATE ${control.table("spans")} SET table_oid = ${found.oid}${since} WHERE run_id = '${runId}'`;
  throw new JobError("OUTPUT_DAMAGED", `${doing}: this is another one of that name`, {
    hint: `${repair}, or start over with --new-run. If the rows have been restored, run: ${moved}`,
    damage: { runId },
  });
}

/**
 * Commits a span's rows and its control row in one transaction, or finds that this was done. Safe to repeat: repeating
 * resolves an unknown outcome, since the control table is read first. The control row, which is unique, is inserted
 * last, so that a slow or dead attempt does not hold it for long. `last`: the error of the previous try.
 */
async function commitSpan(
  tools: TableTools,
  commit: SpanToInsert,
  last: unknown,
): Promise<{ outcome: CommitOutcome; committed: CommittedSpan }> {
  const work = async (session: Session): Promise<CommittedSpan> => {
    const stored = await readControlRow(session, tools.control, commit);
    if (stored === undefined) {
      await publish(session, tools, commit);
    }
    return stored ?? commit.due;
  };
  let committed: CommittedSpan | undefined;
  try {
    committed = await transact(tools, work, { last });
  } catch (error) {
    committed = await explainRefusal(tools, commit, error);
    if (committed === undefined) {
      throw error;
    }
  }
  const isOwn = committed.maker.writer === commit.due.maker.writer;
  return { outcome: isOwn ? "committed" : "adopted", committed };
}

async function readControlRow(
  session: Session,
  control: Control,
  { stored, span }: SpanToInsert,
): Promise<CommittedSpan | undefined> {
  const { rows } = await session.query<{ stored_plan_id: string | null; span: number | null }>({
    text: `SELECT r.plan_id AS stored_plan_id, ${spanColumns} FROM (SELECT 1) AS one
      LEFT JOIN ${control.table("runs")} r ON r.run_id = $1
      LEFT JOIN ${control.table("spans")} s ON s.run_id = $1 AND s.span = $2`,
    values: [stored.plan.runId, span.index],
  });
  const [row] = rows;
  if (row?.stored_plan_id !== stored.planId) {
    throw new JobError(
      "OUTPUT_DAMAGED",
      `reading ${control.schema}.runs: the plan of run ${stored.plan.runId} is ${row?.stored_plan_id === null ? "gone" : "another one"}`,
      {
        hint: "the control tables were changed during the run; restore them from a backup, and look in the table for rows of this run before they are scored again",
      },
    );
  }
  return row.span === null ? undefined : committedSpan(control, stored, row);
}

async function publish(session: Session, tools: TableTools, commit: SpanToInsert): Promise<void> {
  const { control } = tools;
  const { stored, span, rejects, due } = commit;
  const { plan } = stored;
  const { runId } = plan;
  const rowCount = due.rows;
  const taken = rowCount === 0 ? 0 : await tools.modeOf(plan).write(session, commit.rows);
  if (taken !== rowCount) {
    throw new JobError("OUTPUT_REFUSED", `writing span ${span.index}: the table took ${taken} of ${rowCount} rows`, {
      hint: "a trigger of the table keeps rows out or takes them elsewhere; committed spans are kept",
    });
  }
  if (rowCount + rejects.length + due.filtered !== span.rowEnd - span.rowStart) {
    const found = `${rowCount} rows, ${rejects.length} rejected and ${due.filtered} filtered out`;
    throw new Error(`${found} for span ${span.index}`);
  }
  await insertRejects(session, control, runId, span.index, rejects);
  // As late as possible: from here on, a later run waits for the end of this transaction.
  await lockRuns(session, runId, { shared: true });
  await refuseStoppedRun(session, control, plan);
  const isSwapped = await insertSpan(session, tools, commit);
  // The rows are sent: from here on, a swap of the table that took them waits for the end of this transaction.
  if (isSwapped) {
    await refuseSwappedOut(session, tools, plan);
  }
}

/**
 * Another attempt may have committed this span (then, that span is returned), a later run may have removed this one's
 * table, or a column may have changed its type, which a server reports as "insufficient data left in message".
 */
async function explainRefusal(
  tools: TableTools,
  commit: SpanToInsert,
  error: unknown,
): Promise<CommittedSpan | undefined> {
  const isRefusal = error instanceof DatabaseError && classifyFailure(error).kind === "permanent";
  if (!isRefusal && !(error instanceof KeyTakenConcurrently)) {
    return undefined;
  }
  const { control } = tools;
  try {
    return await transact(tools, async (session) => {
      const found = await readControlRow(session, control, commit);
      if (found === undefined) {
        await refuseStoppedRun(session, control, commit.stored.plan);
        await refuseOther(session, tools, commit);
      }
      return found;
    });
  } catch (cause) {
    if (cause instanceof JobError || isMissingTable(cause)) {
      throw cause;
    }
    // What cannot be explained stays what it was: a permanent error does not become one that is tried again.
    throw isRefusal ? error : new KeyTakenConcurrently({ cause });
  }
}

async function refuseOther(
  session: Session,
  { modeOf }: TableTools,
  { stored: { plan }, rows }: SpanToInsert,
): Promise<void> {
  const mode = modeOf(plan);
  const name = mode.rowsAt(plan, { finished: false });
  if ((await findTable(session, name)) !== undefined) {
    await refuseChanged(session, name, rows.columns); // for a table that is gone, the server has reported it
    await mode.checkRows?.(session, plan, "writing"); // rows of a span whose control row is gone may be in the way
  }
}

async function finishAndClear(tools: TableTools, stored: StoredPlan, attempt?: AttemptJson): Promise<void> {
  const { retry, target } = tools;
  // Committed spans do not change: their profiles are merged before the transaction begins.
  const profile = await retrying(`reading ${target}`, retry, () => runProfile(tools, stored));
  const spending = recordedSpending(attempt);
  await retried(
    tools,
    `finishing ${target}`,
    async (session) => {
      if (await readyToPublish(session, tools, stored)) {
        await recordPublication(session, tools, stored.plan, profile, spending);
      }
    },
    finishSeconds,
  );
  await dropUnneededTables(tools, stored);
}

async function runProfile(tools: TableTools, stored: StoredPlan): Promise<string> {
  const profile = await committedProfile(tools, stored.plan);
  const [spans, decision] = await transact(tools, async (session) => [
    await readSpans(session, tools.control, stored),
    await selectDocument(session, tools.control, stored.plan.runId, decisionDocument),
  ]);
  const rejected = spans.reduce((sum, span) => sum + span.rejected, 0);
  return runProfileText(runProfileOf(stored.plan, { profile, rejected, decision }));
}

/** false: another attempt has finished it. */
async function readyToPublish(session: Session, tools: TableTools, stored: StoredPlan): Promise<boolean> {
  const { control } = tools;
  const { plan } = stored;
  const mode = tools.modeOf(plan);
  requirePlannedTarget(plan, tools.planTarget, "finishing");
  await lockRuns(session, plan.runId, { shared: true });
  await lockRun(session, plan.runId);
  if (await isFinished(session, control, plan.runId)) {
    return false;
  }
  await refuseSuperseded(session, control, plan.runId);
  const decision = plan.staged ? await selectDocument(session, control, plan.runId, decisionDocument) : undefined;
  if (decision !== undefined) {
    requireApproved(decision, plan.runId);
  }
  const spans = await readSpans(session, control, stored);
  await requireSpans(session, tools, plan, "finishing"); // a server that has lost spans has lost the decision, too
  if (plan.staged) {
    requireApproved(decision, plan.runId);
  }
  const due = mode.writtenRows?.(plan);
  if (due !== undefined) {
    await requireThere(session, tools, plan, spans);
    const files = await changedFiles(session, tools, plan);
    if (files !== undefined) {
      await refuseEmptied(session, tools, plan, { doing: `finishing run ${plan.runId}`, due, files });
    }
  }
  await mode.finish?.(session, plan);
  return true;
}

/**
 * Checks that no span of a run is missing whose spans have all been committed. A server that a replica has replaced may
 * have lost the last ones, with their rows and with what came after them: the next attempt scores them again. Where the
 * rows are there, or may be, or the run was judged with these spans, the control rows were deleted.
 * @throws JobError DATABASE, OUTPUT_DAMAGED
 */
async function requireSpans(session: Session, tools: TableTools, plan: Plan, doing: RowsNeeded): Promise<void> {
  const { control, target } = tools;
  const { runId } = plan;
  const { rows } = await session.query<{ span: number | null }>({
    text: `SELECT min(n)::int4 AS span FROM generate_series(0, $2 - 1) AS n
      WHERE NOT EXISTS (SELECT FROM ${control.table("spans")} WHERE run_id = $1 AND span = n)`,
    values: [runId, spanCount(plan)],
  });
  const missing = rows[0]?.span ?? undefined;
  if (missing === undefined) {
    return;
  }
  const mode = tools.modeOf(plan);
  const message = `${doing} run ${runId}: span ${missing} of ${spanCount(plan)} is no longer committed`;
  if (mode.checkRows === undefined) {
    throw spansMissing(message, control, runId, target);
  }
  if (plan.staged && (await selectDocument(session, control, runId, verdictDocument)) !== undefined) {
    throw damagedRun(runId, message, "restore the control tables from a backup");
  }
  await refuseSwappedOut(session, tools, plan);
  await mode.checkRows(session, plan, doing);
  throw new JobError("DATABASE", `${message}, and its rows are gone, too`, {
    hint: "the server has lost both, such as by a failover to a replica that was behind; run the same command again: it scores these rows again",
  });
}

/** Also keeps other runs and rollbacks from replacing the rows before this transaction ends. */
async function requireThere(
  session: Session,
  tools: TableTools,
  plan: Plan,
  spans: readonly CommittedSpan[],
): Promise<void> {
  const { name } = tools;
  await lock(session, `swap ${showTable(name)}`, { shared: true });
  const found = await findTable(session, name);
  await refuseLost(session, tools.control, plan, { name, found, finished: false, isHeld: false, spans });
  await refuseSwappedOut(session, tools, plan);
}

async function recordPublication(
  session: Session,
  { control, name, writer }: TableTools,
  plan: Plan,
  profile: string,
  spending: RecordedSpending | undefined,
): Promise<void> {
  const finishes = control.table("finishes");
  const target = showTable(name);
  await lock(session, `publication ${target}`);
  await session.query({
    text: `INSERT INTO ${finishes} (run_id, writer, target, publication, profile, profile_sha256, model_sha256, spending)
      SELECT $1, $2, $3, coalesce(max(publication), 0) + 1, $4, $5, $6, $7 FROM ${finishes} WHERE target = $3`,
    values: [
      plan.runId,
      writer,
      target,
      profile,
      sha256Of(profile),
      plan.model.sha256,
      spending === undefined ? null : JSON.stringify(spending),
    ],
  });
}

/**
 * Drops tables that are no longer needed, after the finish: a session that reads one, or a view of one, must neither
 * fail the finish nor make readers of the target wait. The next finish tries again.
 */
async function dropUnneededTables(tools: TableTools, { plan }: StoredPlan): Promise<void> {
  const { control, name } = tools;
  const find = async (session: Session): Promise<readonly TableName[]> => [
    ...((await tools.modeOf(plan).unneededTables?.(session)) ?? []),
    ...(await tablesOfClosedRuns(session, control, showTable(name))),
    ...(await tablesToDrop(session, control, plan)), // the others are those of the latest runs only
  ];
  await dropTables(tools, find, `; the next run that is published into ${showTable(name)} tries again`);
  await warnOfKeptTables(tools, plan);
}

async function warnOfKeptTables(tools: TableTools, plan: Plan): Promise<void> {
  if (plan.checks === null && tools.modeOf(plan).kind === "append") {
    return; // it is not staged
  }
  const kept = await transact(tools, (session) => tablesOfOthers(session, tools.control, plan)).catch(() => []);
  for (const { owner, ...table } of kept) {
    tools.warnOnce(`table ${showTable(table)} still has rows of the run: ${owner}, which owns it, must drop it`);
  }
}

/**
 * Locks a run for the decision on it, and admits that unless there is one. A run that a later one has replaced is not
 * approved or discarded, and a run that may not overwrite newer rows, or whose rows the table cannot take, is not approved.
 * A discarded run takes no more spans: the lock waits for those that are being committed.
 * @throws JobError PLAN_CHANGED, OUTPUT_NEWER, OUTPUT_MISMATCH, OUTPUT_DAMAGED
 */
async function admitDecision(session: Session, tools: TableTools, plan: Plan, decision: Decision): Promise<void> {
  const { control } = tools;
  const { runId } = plan;
  await lockRuns(session, runId, { shared: decision.kind !== "discarded" });
  if ((await selectDocument(session, control, runId, decisionDocument)) !== undefined) {
    return;
  }
  if (decision.kind !== "superseded") {
    await refuseSuperseded(session, control, runId);
  }
  if (decision.kind === "approved") {
    await refuseUnpublishable(session, tools, plan, decision);
  }
}

/** Nothing else may become of an approved run. Publishing checks all of it again. */
async function refuseUnpublishable(session: Session, tools: TableTools, plan: Plan, { by }: Decision): Promise<void> {
  requirePlannedTarget(plan, tools.planTarget, "approving");
  const mode = tools.modeOf(plan);
  if (mode.kind !== "append") {
    await tools.refuseNewer(session, plan);
  }
  await lockRun(session, plan.runId);
  if ((await selectDocument(session, tools.control, plan.runId, decisionDocument)) !== undefined) {
    return; // of an attempt that has approved it meanwhile: the staging table of a published run is gone
  }
  await requireSpans(session, tools, plan, "approving");
  await mode.prepare(session, plan, { mayCreate: spanCount(plan) === 0 });
  await mode.checkFinish?.(session, plan);
  if (by !== byChecks) {
    await mode.checkRows?.(session, plan, "approving"); // checks approve what this command has just scored, and publishes at once
  }
}

const shownKeys = 3;

async function countKeys(session: Session, table: TableName, columns: readonly string[]): Promise<KeyCounts> {
  const names = columns.map(quoteName);
  const isNull = names.map((name) => `${name} IS NULL`).join(" OR ");
  const shown = `concat_ws(', ', ${names.map((name) => `left(${name}::text, 60)`).join(", ")})`;
  const from = quoteTable(table);
  await session.query("SET LOCAL statement_timeout = 0"); // counting all rows may take longer than the limit of a statement
  const { rows } = await session.query<KeyCounts>(
    `WITH counts AS MATERIALIZED (
       SELECT ${names.join(", ")}, count(*) AS copies FROM ${from} WHERE NOT (${isNull})
       GROUP BY ${names.join(", ")} HAVING count(*) > 1)
     SELECT (SELECT coalesce(sum(copies - 1), 0)::float8 FROM counts) AS repeated,
       (SELECT count(*)::float8 FROM ${from} WHERE ${isNull}) AS nulls,
       ARRAY(SELECT ${shown} FROM counts ORDER BY 1 LIMIT ${shownKeys}) AS examples`,
  );
  return rows[0] ?? { repeated: 0, nulls: 0, examples: [] };
}
