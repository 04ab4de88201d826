import { JobError } from "../../base/errors.js";
import { type Session, transact } from "./connections.js";
import { answersTable, findTable, quoteTable, showTable } from "./table.js";
import { splitRunId } from "../../run/plan/identity.js";
import type { Plan, RunId } from "../../run/plan/plan.js";
import type { StoredPlan } from "../target.js";
import type { SupersededRun } from "../../run/lifecycle/lifecycle.js";
import { decisionDocument } from "../../stores/ledger.js";
import {
  type Control,
  createDocument,
  hasControlTables,
  laterRun,
  latestPlan,
  lockRun,
  lockRuns,
  makeControlTables,
  selectPlan,
  refuseSuperseded,
  storePlan,
} from "./control.js";
import { splitTable } from "../../job/jobfile/output-spec.js";
import { dropLeftovers } from "./own-tables.js";
import { prepareRun, refuseOlder } from "./run.js";
import type { TableTools } from "./modes/mode.js";
import { refusePrunedPins } from "./past-runs.js";
import { makeAnswersTable } from "./answers.js";
import { readSpans } from "./spans.js";
import { copyStream } from "./copy-binary.js";

/**
 * Stores the plan of a run unless there is one, and prepares the tables. Returns the stored plan; that of the run in whose
 * place it would come, if that one is approved, and no other attempt has stored a plan after it.
 * @throws JobError PLAN_CHANGED, OUTPUT_NEWER, USAGE
 */
export async function createRun(
  session: Session,
  tools: TableTools,
  plan: Plan,
  insteadOf?: SupersededRun,
): Promise<StoredPlan> {
  const { control, planTarget } = tools;
  const { runId } = plan;
  await lockRuns(session, runId, { shared: false });
  await refuseTakingOver(session, tools, runId); // before the run before it is superseded
  if (insteadOf !== undefined) {
    const held = insteadOf.runId;
    const { kind } = await createDocument(session, tools, held, decisionDocument, insteadOf.decision);
    if (kind === "approved" && (await laterRun(session, control, held)) === undefined) {
      return await requirePlan(session, control, held);
    }
  }
  await refuseSuperseded(session, control, runId);
  if (await storePlan(session, control, plan)) {
    await refuseForgotten(session, tools, runId);
    await refuseDuplicates(session, tools, runId);
    // In this transaction: so the run before it can still be approved, and no unfinished plan keeps rows from being erased.
    await refuseOlder(session, tools, plan, 0);
    await dropLeftovers(session, control, { runId, target: planTarget.table, mode: planTarget.mode });
    await refusePrunedPins(session, control, plan, planTarget.table);
  }
  const stored = await requirePlan(session, control, runId);
  if (stored.pruned !== undefined) {
    throw new JobError("PLAN_CHANGED", `planning run ${runId}: the runs before it were pruned meanwhile`, {
      hint: "run the same command again",
    });
  }
  await lockRun(session, runId);
  await prepareRun(session, tools, stored.plan, { mayCreate: true });
  return stored;
}

async function requirePlan(session: Session, control: Control, runId: RunId): Promise<StoredPlan> {
  const stored = await selectPlan(session, control, runId);
  if (stored === undefined) {
    throw new Error(`the plan of run ${runId} was stored and is gone`);
  }
  return stored;
}

/** Refuses to plan a run anew whose plan is gone while other control rows of it are there. @throws JobError OUTPUT_DAMAGED */
async function refuseForgotten(
  session: Session,
  { control: { schema, table }, planTarget }: TableTools,
  runId: RunId,
): Promise<void> {
  const tables = (["attempts", "finishes"] as const).map(table);
  const { rows } = await session.query({
    text: tables.map((name) => `SELECT FROM ${name} WHERE run_id = $1`).join(" UNION ALL "),
    values: [runId],
  });
  if (rows.length > 0) {
    const forget = tables.map((name) => `DELETE FROM ${name} WHERE run_id = '${runId}'`).join("; ");
    throw new JobError("OUTPUT_DAMAGED", `reading ${schema}.runs: the plan of run ${runId} is gone`, {
      hint: `rows of run ${runId} may be in ${planTarget.table} all the same: look for them there first. If they are, restore the control tables from a backup, or delete all of them. When none is there: ${forget}; then run the same command again`,
    });
  }
}

/**
 * Unless the table is empty, a new run in mode append would add the same rows again. The fence around the runs is
 * locked, so that no row of an earlier run can come later.
 */
async function refuseDuplicates(
  session: Session,
  { control, name, planTarget, allowDuplicates }: TableTools,
  runId: RunId,
): Promise<void> {
  const isFirst = splitRunId(runId).number === 1;
  if (isFirst || planTarget.mode !== "append" || allowDuplicates || (await nothingPublished(session, control, runId))) {
    return;
  }
  const table = await findTable(session, name);
  // A role that may not read all rows cannot tell that there are none.
  const mayTell = table?.readable === true && !table.secured;
  const isEmpty = mayTell && (await session.query(`SELECT FROM ${quoteTable(name)} LIMIT 1`)).rows.length === 0;
  if (table !== undefined && !isEmpty) {
    throw new JobError(
      "USAGE",
      `opening a new run: output.postgres.mode is append, and ${showTable(name)} keeps the rows of the runs before`,
      {
        hint: "use mode upsert or replace, which accept new runs; or empty the table; or delete those rows, or accept each row twice, and add --allow-duplicates",
      },
    );
  }
}

/**
 * Whether no run before this one has published a row: none is published, and those that are not staged have no span with
 * rows, and no record of any, which outlives deleted control rows of spans. It stays so once this run's plan is stored: a
 * run that commits a span, or is being published, holds `lockRuns`.
 */
async function nothingPublished(session: Session, { table, where }: Control, runId: RunId): Promise<boolean> {
  const { base, number } = splitRunId(runId);
  const { rows } = await session.query<{ nothing: boolean | null }>({
    text: `SELECT bool_and(${where.isUnfinished} AND (staged OR NOT EXISTS (
          SELECT FROM ${table("spans")} s WHERE s.run_id = r.run_id AND s.rows > 0
          UNION ALL
          SELECT FROM ${table("documents")} d WHERE d.run_id = r.run_id AND d.name IN ('spans_gone', 'verdict')))) AS nothing
      FROM ${table("runs")} r WHERE base = $1 AND number < $2`,
    values: [base, number],
  });
  return rows[0]?.nothing === true;
}

/**
 * Refuses a new run in place of one whose rows are for another table, which may be another job's of the same name: that job
 * could not finish its run, and would add its rows again. Admitted if the new run is planned already; if that table is
 * gone, which may have been renamed; if the run before is published, discarded or superseded; and if it has neither
 * committed spans nor an approval.
 * @throws JobError PLAN_CHANGED
 */
async function refuseTakingOver(
  session: Session,
  { control: { table, where }, planTarget }: TableTools,
  runId: RunId,
): Promise<void> {
  const { base, number } = splitRunId(runId);
  if (number === 1) {
    return;
  }
  const { rows } = await session.query<{ run_id: RunId; target: string; job: string; approved: boolean }>({
    text: `SELECT run_id, target, job, approved FROM (
        SELECT r.*, ${where.isDecided("approved")} AS approved FROM ${table("runs")} r WHERE base = $1 AND number < $2
        ORDER BY number DESC LIMIT 1) r
      WHERE target <> $3 AND NOT EXISTS (SELECT FROM ${table("runs")} WHERE run_id = $4) AND ${where.isUnfinished} AND NOT ${where.isDecided("discarded")} AND NOT ${where.isDecided("superseded")}
        AND (approved OR EXISTS (SELECT 1 FROM ${table("spans")} s WHERE s.run_id = r.run_id))`,
    values: [base, number, planTarget.table, runId],
  });
  const [other] = rows;
  if (other === undefined) {
    return;
  }
  const found = await findTable(session, splitTable(other.target));
  if (found === undefined || !["r", "p"].includes(found.kind)) {
    return; // a view may have the name of a table that was renamed; no run can publish into it
  }
  const state = other.approved ? "is approved" : "has committed spans";
  throw new JobError(
    "PLAN_CHANGED",
    `opening run ${runId}: run ${other.run_id} for ${other.target} ${state} and is not published`,
    {
      hint: `if another job is called ${other.job}, too, give this job another name; else name ${other.target} in output.postgres.table again, and finish or discard that run, or run --new-run there; or drop that table if it is no longer needed`,
    },
  );
}

/** Thrown at the end of a rehearsal, so that its transaction is rolled back. */
class RolledBack extends Error {}

/**
 * Carries out the first steps of a run in a transaction that is rolled back: creates the control tables, stores the
 * plan, creates or checks the table, looks for newer runs. Returns the checks that were not carried out, a line each.
 * @throws JobError the errors of a run that begins
 */
export async function rehearseNewRun(tools: TableTools, plan: Plan): Promise<readonly string[]> {
  let untried: readonly string[] = [];
  try {
    await transact(tools, async (session) => {
      untried = await tryAll(session, tools, plan);
      throw new RolledBack();
    });
  } catch (error) {
    if (!(error instanceof RolledBack)) {
      throw error;
    }
  }
  return untried;
}

/**
 * Checks whether the run that is planned for some params may publish more rows. Takes no lock. Returns the checks that were
 * not carried out, a line each.
 * @throws JobError OUTPUT_NEWER
 */
export async function rehearsePlanned(tools: TableTools, { runId }: Pick<Plan, "runId">): Promise<readonly string[]> {
  const { control } = tools;
  await transact(tools, async (session) => {
    const isThere = await hasControlTables(session, control.schema);
    const stored = isThere ? await latestPlan(session, control, splitRunId(runId).base) : undefined;
    if (stored !== undefined) {
      await refuseOlder(session, tools, stored.plan, (await readSpans(session, control, stored)).length);
    }
  });
  // Its transaction must not make the attempts of the run wait.
  return ["privileges and columns of the tables, which an attempt checks before it resumes the run"];
}

/** How long another session may hold a lock on the table of the rows. */
const lockTimeout = "2s";
const lockNotAvailable = "55P03";
/** Bits of `pg_trigger.tgtype`. */
const triggerBits = { insert: 4, delete: 8, update: 16 };

type Statement = keyof typeof triggerBits;

async function tryAll(session: Session, tools: TableTools, plan: Plan): Promise<readonly string[]> {
  const { control, name, target, program } = tools;
  const mode = tools.modeOf(plan);
  const own = quoteTable(mode.rowsAt(plan, { finished: false }));
  await makeControlTables(session, control.schema, program);
  await createRun(session, tools, plan);
  const columns = await mode.prepare(session, plan, { mayCreate: true });

  const rights = mode.kind === "upsert" ? ["INSERT", "SELECT", "UPDATE"] : ["INSERT"];
  await requireRights(session, target, own, rights);
  if (mode.kind !== "replace" && (await findTable(session, name)) !== undefined) {
    await requireRights(session, target, quoteTable(name), rights);
  }
  const swaps = mode.kind === "replace" ? (["swaps"] as const) : [];
  for (const table of ["attempts", "documents", "finishes", "rejects", "spans", ...swaps] as const) {
    await requireRights(session, target, control.table(table), ["INSERT"]);
  }
  const answers = answersTable(control.schema, plan.runId);
  if (plan.request.prompt !== undefined && (await findTable(session, answers)) === undefined) {
    await makeAnswersTable(session, answers);
  }

  // The server checks rights on columns, row-level security and temporary tables as for a run with rows.
  await session.query(`SET LOCAL lock_timeout = '${lockTimeout}'`);
  const { rehearseFinish: finish } = mode;
  const writes: readonly Statement[] = mode.kind === "upsert" ? ["insert", "update"] : ["insert"];
  const span = { plan, span: 0, chunks: copyStream(), columns };
  const untried =
    (await whyUntried(session, own, writes, () => mode.write(session, span))) ??
    (finish && (await whyUntried(session, quoteTable(name), finish.statements, () => finish.run(session, plan))));
  return [
    ...(untried === undefined ? [] : [untried]),
    "triggers, rules, constraints, partitions and policies of the table are checked when rows are written",
  ];
}

/** Not where a trigger runs for each statement, whose effects may outlive the transaction. undefined: carried out. */
async function whyUntried(
  session: Session,
  table: string,
  statements: readonly Statement[],
  act: () => Promise<unknown>,
): Promise<string | undefined> {
  const triggers = await session.query({
    text: `SELECT FROM pg_trigger WHERE tgrelid = to_regclass($1) AND NOT tgisinternal AND tgenabled IN ('O', 'A')
      AND tgtype & 1 = 0 AND tgtype & $2 <> 0 LIMIT 1`,
    values: [table, statements.reduce((bits, statement) => bits + triggerBits[statement], 0)],
  });
  if (triggers.rows.length > 0) {
    return `privileges on ${table}: it has statement-level triggers, so plan runs no statement on it; run checks them`;
  }
  try {
    await act();
    return undefined;
  } catch (error) {
    if (Object(error).code === lockNotAvailable) {
      return `privileges on ${table}: another session has locked it for more than ${lockTimeout}; run plan again`;
    }
    throw error;
  }
}

async function requireRights(
  session: Session,
  target: string,
  table: string,
  rights: readonly string[],
): Promise<void> {
  const { rows } = await session.query<{ right: string; role: string }>({
    text: `SELECT r AS right, current_user AS role FROM unnest($2::text[]) r
      WHERE NOT has_table_privilege($1, r) AND NOT has_any_column_privilege($1, r)`,
    values: [table, rights],
  });
  const [missing] = rows;
  if (missing !== undefined) {
    const lacking = rows.map(({ right }) => right).join(", ");
    throw new JobError("PERMISSION", `checking ${target}: ${missing.role} lacks the privilege ${lacking} on ${table}`, {
      hint: `GRANT ${lacking} ON ${table} TO ${missing.role}`,
    });
  }
}
