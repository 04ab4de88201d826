import { sha256Of } from "../../util/sha256.js";
import { spanCount } from "../../plan/spans.js";
import { runProfileOf, runProfileText } from "../../publish/profile-text.js";
import { byChecks, type Decision, requireApproved } from "../../publish/decision.js";
import { JobError, messageOf } from "../../util/errors.js";
import { type RecordedSpending, recordedSpending } from "../../publish/recorded-run.js";
import type { Plan } from "../../plan/plan.js";
import type { AttemptJson, RunSink, StoredPlan } from "../port.js";
import { tablesOfClosedRuns, tablesOfOthers, tablesToDrop } from "./other-runs/own-tables.js";
import {
  changedFiles,
  committedProfile,
  type CommittedSpan,
  readSpans,
  refuseEmptied,
  spansMissing,
} from "./control/spans.js";
import { damagedRun } from "./control/control.js";
import { type Session, transact } from "./connections.js";
import { decisionDocument, verdictDocument } from "../ledger.js";
import { createDocument, readDocument } from "./control/documents.js";
import { lock, lockRun, lockRuns, refuseSuperseded } from "./locks.js";
import { classify, retrying } from "./failures.js";
import type { RowsNeeded } from "./modes/mode.js";
import { quoteName, quoteTable, showTable, type TableName } from "./names.js";
import { refuseSwappedOut } from "./control/swaps.js";
import { refuseLost } from "./read-run.js";
import { finishSeconds, retried, type RunTools } from "./run-tools.js";
import { findTable } from "./table.js";
import { requirePlannedTarget } from "./target.js";
import type { KeyCounts } from "../../checks/rules/spec.js";

/** Finishes a run: checks that all of its spans are committed. Then drops its tables, and those of the runs that it replaces. */
export async function finishAndClear(tools: RunTools, stored: StoredPlan, attempt?: AttemptJson): Promise<void> {
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

/** The text of a run's profile. */
async function runProfile(tools: RunTools, stored: StoredPlan): Promise<string> {
  const profile = await committedProfile(tools, stored.plan);
  const [spans, decision] = await transact(tools, async (session) => [
    await readSpans(session, tools.control, stored),
    await readDocument(session, tools.control, stored.plan.runId, decisionDocument),
  ]);
  const rejected = spans.reduce((sum, span) => sum + span.rejected, 0);
  return runProfileText(runProfileOf(stored.plan, { profile, rejected, decision }));
}

/** Finishes a run in the target; false: another attempt has finished it. */
async function readyToPublish(session: Session, tools: RunTools, stored: StoredPlan): Promise<boolean> {
  const { control } = tools;
  const { plan } = stored;
  const mode = tools.modeOf(plan);
  requirePlannedTarget(plan, tools.planTarget, "finishing");
  await lockRuns(session, plan.runId, { shared: true });
  await lockRun(session, plan.runId);
  if (await control.isFinished(session, plan.runId)) {
    return false;
  }
  await refuseSuperseded(session, control, plan.runId);
  const decision = plan.staged ? await readDocument(session, control, plan.runId, decisionDocument) : undefined;
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
async function requireSpans(session: Session, tools: RunTools, plan: Plan, doing: RowsNeeded): Promise<void> {
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
  if (plan.staged && (await readDocument(session, control, runId, verdictDocument)) !== undefined) {
    throw damagedRun(message, { hint: "restore the control tables from a backup", runId });
  }
  await refuseSwappedOut(session, tools, plan);
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
  plan: Plan,
  spans: readonly CommittedSpan[],
): Promise<void> {
  const { name } = tools;
  await lock(session, `swap ${showTable(name)}`, { shared: true });
  const found = await findTable(session, name);
  await refuseLost(session, tools.control, plan, { name, found, finished: false, isHeld: false, spans });
  await refuseSwappedOut(session, tools, plan);
}

/** Records that a run is published, under the next number of its target. */
async function recordPublication(
  session: Session,
  { control, name, writer }: RunTools,
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
async function warnOfKeptTables(tools: RunTools, plan: Plan): Promise<void> {
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

/** What decides whether a run is published: its profile, the verdict on it, and the decision. */
export function runDecisions(tools: RunTools, plan: Plan): Pick<RunSink, "profile" | "countKeys" | "create" | "tidy"> {
  const { control, retry, target } = tools;
  const { runId } = plan;
  return {
    profile: () => retrying(`reading ${target}`, retry, () => committedProfile(tools, plan)),
    countKeys: (columns) =>
      retried(
        tools,
        `counting the keys of run ${runId}`,
        (session) => countKeys(session, tools.modeOf(plan).rowsAt(plan, { finished: false }), columns),
        finishSeconds,
      ),
    create: (kind, value) =>
      retried(
        tools,
        `writing the ${kind.name} on ${runId}`,
        async (session) => {
          await ("kind" in value
            ? admitDecision(session, tools, plan, value)
            : requireSpans(session, tools, plan, "judging"));
          return await createDocument(session, tools, runId, kind, value);
        },
        !("kind" in value) || value.kind === "approved" ? finishSeconds : undefined,
      ),
    async tidy() {
      await dropTables(tools, (session) => tablesToDrop(session, control, plan));
      await warnOfKeptTables(tools, plan);
    },
  };
}

/**
 * Locks a run for the decision on it, and admits that unless there is one. A run that a later one has replaced is not
 * approved or discarded, and a run that may not overwrite newer rows, or whose rows the table cannot take, is not approved.
 * A discarded run takes no more spans: the lock waits for those that are being committed.
 * @throws JobError PLAN_CHANGED, OUTPUT_NEWER, OUTPUT_MISMATCH, OUTPUT_DAMAGED
 */
async function admitDecision(session: Session, tools: RunTools, plan: Plan, decision: Decision): Promise<void> {
  const { control } = tools;
  const { runId } = plan;
  await lockRuns(session, runId, { shared: decision.kind !== "discarded" });
  if ((await readDocument(session, control, runId, decisionDocument)) !== undefined) {
    return;
  }
  if (decision.kind !== "superseded") {
    await refuseSuperseded(session, control, runId);
  }
  if (decision.kind === "approved") {
    await refuseUnpublishable(session, tools, plan, decision);
  }
}

/**
 * Refuses to approve a run that could not be published, as far as that is known before its rows are written: nothing
 * else may become of an approved run. Publishing checks all of it again.
 */
async function refuseUnpublishable(session: Session, tools: RunTools, plan: Plan, { by }: Decision): Promise<void> {
  requirePlannedTarget(plan, tools.planTarget, "approving");
  const mode = tools.modeOf(plan);
  if (mode.kind !== "append") {
    await tools.refuseNewer(session, plan);
  }
  await lockRun(session, plan.runId);
  if ((await readDocument(session, tools.control, plan.runId, decisionDocument)) !== undefined) {
    return; // of an attempt that has approved it meanwhile: the staging table of a published run is gone
  }
  await requireSpans(session, tools, plan, "approving");
  await mode.prepare(session, plan, { mayCreate: spanCount(plan) === 0 });
  await mode.checkFinish?.(session, plan);
  if (by !== byChecks) {
    await mode.checkRows?.(session, plan, "approving"); // checks approve what this command has just scored, and publishes at once
  }
}

/** The number of repeated keys that a verdict names. */
const shownKeys = 3;

/** Counts how often keys repeat in a table that holds the rows of one run only. */
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
