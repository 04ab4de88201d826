import { spanCount } from "../../plan/spans.js";
import { runProfileOf, runProfileText } from "../../publish/profile-text.js";
import { requireApproved } from "../../publish/require-approved.js";
import { JobError, messageOf } from "../../util/errors.js";
import { type RecordedSpending, recordedSpending } from "../../publish/recorded-run.js";
import type { Plan } from "../../plan/plan.js";
import type { AttemptJson, StoredPlan } from "../port.js";
import { tablesOfClosedRuns, tablesOfOthers, tablesToDrop } from "./other-runs/abandoned-runs.js";
import { damagedRun, spansMissing } from "./damage.js";
import type { Session } from "./connections.js";
import { decisionDocument, verdictDocument } from "../ledger.js";
import { readDocument } from "./control/documents.js";
import { forgetSpansGone } from "./control/spans-gone.js";
import { changedFiles, refuseEmptied } from "./control/emptied-table.js";
import { sha256Of } from "./control/control.js";
import { committedProfile } from "./control/run-profile.js";
import { type CommittedSpan, readSpans } from "./control/spans.js";
import { lock, lockRun, lockRuns, refuseSuperseded } from "./locks.js";
import { classify } from "./failures.js";
import type { RowsNeeded } from "./modes/mode.js";
import { quoteTable, showTable, type TableName } from "./names.js";
import { refuseSwappedOut } from "./other-runs/swapped-out-rows.js";
import { refuseLost } from "./read-run.js";
import { retrying } from "./retry.js";
import type { RunTools } from "./run-tools.js";
import { findTable } from "./table.js";
import { requirePlannedTarget } from "./target.js";
import { transact } from "./transaction.js";

/** Limit of a check of all rows of a run, and of moving them where a rename is not enough. */
export const finishSeconds = 24 * 3600;

/** Finishes a run: checks that all of its spans are committed. Then drops its tables, and those of the runs that it replaces. */
export async function finishAndClear(tools: RunTools, stored: StoredPlan, attempt?: AttemptJson): Promise<void> {
  const { retry, target } = tools;
  // Committed spans do not change: their profiles are merged before the transaction begins.
  const profile = await retrying(`reading ${target}`, retry, () => runProfile(tools, stored));
  await retrying(`finishing ${target}`, retry, (last) =>
    transact(tools, (session) => finishRun(session, tools, { stored, profile, spending: recordedSpending(attempt) }), {
      last,
      silentSeconds: finishSeconds,
    }),
  );
  await dropUnneededTables(tools, stored);
}

/** The text of a run's profile. */
async function runProfile(tools: RunTools, stored: StoredPlan): Promise<string> {
  const profile = await committedProfile(tools, stored.plan);
  const [spans, decision] = await transact(tools, async (session) => [
    await readSpans(session, tools.control, stored),
    await readDocument(session, tools.control, { runId: stored.plan.runId, kind: decisionDocument }),
  ]);
  const rejected = spans.reduce((sum, span) => sum + span.rejected, 0);
  return runProfileText(runProfileOf(stored.plan, { profile, rejected, decision }));
}

interface Finish {
  readonly stored: StoredPlan;
  readonly profile: string;
  readonly spending: RecordedSpending | undefined;
}

async function finishRun(session: Session, tools: RunTools, { stored, profile, spending }: Finish): Promise<void> {
  const { control, name } = tools;
  const { plan } = stored;
  const mode = tools.modeOf(plan);
  requirePlannedTarget(plan, tools.planTarget, "finishing");
  await lockRuns(session, plan.runId, { shared: true });
  await lockRun(session, plan.runId);
  if (await control.isFinished(session, plan.runId)) {
    return;
  }
  await refuseSuperseded(session, control, plan.runId);
  const decision = plan.staged
    ? await readDocument(session, control, { runId: plan.runId, kind: decisionDocument })
    : undefined;
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
    await requireThere(session, tools, stored, spans);
  }
  const files = due === undefined ? undefined : await changedFiles(session, { name, control, plan });
  if (due !== undefined && files !== undefined) {
    await refuseEmptied(session, { name, control, plan, doing: `finishing run ${plan.runId}`, due, files });
  }
  await mode.finish?.(session, plan);
  await recordPublication(session, tools, { stored, profile, spending });
}

/**
 * Checks that no span of a run is missing whose spans have all been committed. A server that a replica has replaced may
 * have lost the last ones, with their rows and with what came after them: the next attempt scores them again. Where the
 * rows are there, or may be, or the run was judged with these spans, the control rows were deleted.
 * @throws JobError DATABASE, OUTPUT_DAMAGED
 */
export async function requireSpans(session: Session, tools: RunTools, plan: Plan, doing: RowsNeeded): Promise<void> {
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
    throw spansMissing(message, { runId, target, notThere: forgetSpansGone(control, runId) });
  }
  if (plan.staged && (await readDocument(session, control, { runId, kind: verdictDocument })) !== undefined) {
    throw damagedRun(message, { hint: "restore the control tables from a backup", runId });
  }
  await refuseSwappedOut(session, { control, mode, name: tools.name, plan });
  await mode.checkRows(session, plan, doing);
  throw new JobError("DATABASE", `${message}, and its rows are gone, too`, {
    hint: "the server has lost both, such as by a failover to a replica that was behind; run the same command again: it scores these rows again",
  });
}

/**
 * Checks that the rows that the run's spans wrote are still in the target, and keeps other runs and rollbacks from
 * replacing them before this transaction ends.
 * @throws JobError OUTPUT_DAMAGED
 */
async function requireThere(
  session: Session,
  tools: RunTools,
  stored: StoredPlan,
  spans: readonly CommittedSpan[],
): Promise<void> {
  const { control, name } = tools;
  const { plan } = stored;
  await lock(session, `swap ${showTable(name)}`, { shared: true });
  await refuseLost(session, tools, stored, {
    name,
    found: await findTable(session, name),
    finished: false,
    isHeld: false,
    spans,
  });
  await refuseSwappedOut(session, { control, mode: tools.modeOf(plan), name, plan });
}

/** Records that a run is published, under the next number of its target. */
async function recordPublication(
  session: Session,
  { control, name, writer }: RunTools,
  { stored: { plan }, profile, spending }: Finish,
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
      profile ?? null,
      profile === undefined ? null : sha256Of(profile),
      plan.model.sha256,
      spending === undefined ? null : JSON.stringify(spending),
    ],
  });
}

/**
 * Drops tables that are no longer needed, after the finish: a session that reads one, or a view of one, must neither
 * fail the finish nor make readers of the target wait. The next finish tries again.
 */
async function dropUnneededTables(tools: RunTools, { plan }: StoredPlan): Promise<void> {
  const { control, name } = tools;
  const find = async (session: Session): Promise<readonly TableName[]> => [
    ...((await tools.modeOf(plan).unneededTables?.(session)) ?? []),
    ...(await tablesOfClosedRuns(session, control, showTable(name))),
    ...(await tablesToDrop(session, control, plan)), // the others are those of the latest runs only
  ];
  await dropTables(tools, find, `; the next run that is published into ${showTable(name)} tries again`);
  await warnOfKeptTables(tools, plan);
}

/** Warns of each table of a run that is over which is still there because another role made it. */
export async function warnOfKeptTables(tools: RunTools, plan: Plan): Promise<void> {
  if (plan.checks === null && tools.modeOf(plan).kind === "append") {
    return; // it is not staged
  }
  const kept = await transact(tools, (session) => tablesOfOthers(session, tools.control, plan)).catch(() => []);
  for (const { owner, ...table } of kept) {
    tools.warnOnce(`table ${showTable(table)} still has rows of the run: ${owner}, which owns it, must drop it`);
  }
}

/** What the server says, on one line: of a view that depends on a table, its name. */
function foundIn(error: unknown): string {
  const failure = classify(error);
  return (failure.kind === "bug" ? messageOf(error) : failure.found).replaceAll(/\s*\n\s*/g, ", ");
}

/** Drops tables, each in a transaction of its own. Warns about those that it cannot drop. `next`: added to these warnings. */
export async function dropTables(
  tools: RunTools,
  find: (session: Session) => Promise<readonly TableName[]>,
  next = "",
): Promise<void> {
  const { warn } = tools;
  try {
    // The same table may be found in several ways.
    for (const name of new Map((await transact(tools, find)).map((one) => [quoteTable(one), one])).values()) {
      await transact(tools, (session) => session.query(`DROP TABLE IF EXISTS ${quoteTable(name)}`)).catch(
        (error: unknown) => {
          warn(`table ${showTable(name)} is no longer needed, and could not be dropped: ${foundIn(error)}${next}`);
        },
      );
    }
  } catch (error) {
    warn(`tables that are no longer needed could not be dropped: ${messageOf(error)}`);
  }
}
