import { sha256Of } from "../../../util/sha256.js";
import { numberedRunId, splitRunId } from "../../../plan/identity.js";
import { parsePlan, planToText } from "../../../plan/parse-plan.js";
import type { Plan, RunId } from "../../../plan/plan.js";
import { spanCount } from "../../../plan/spans.js";
import { parseTombstone } from "../../../publish/pruned-run.js";
import { logicalDateOf } from "../../../publish/published-run.js";
import type { StoredPlan } from "../../port.js";
import type { Session } from "../connections.js";
import { quoteName } from "../names.js";
import { isPostgresPlan, plannedTarget } from "../target.js";
import type { Decision } from "../../../publish/decision.js";
import { type Damage, JobError } from "../../../util/errors.js";

type ControlTableName =
  | "runs"
  | "attempts"
  | "spans"
  | "rejects"
  | "finishes"
  | "documents"
  | "verdicts"
  | "decisions"
  | "swaps";

/** Reads and inserts rows of the control tables. Each call is one or two statements on the given session. */
export interface Control {
  readonly schema: string;
  /** `"infer_batch".spans` */
  readonly table: (name: ControlTableName) => string;
  readPlan(session: Session, runId: RunId): Promise<StoredPlan | undefined>;
  /** Reads the plan of the latest of the runs that start with `base`; of a pruned run too. */
  latestPlan(session: Session, base: RunId): Promise<StoredPlan | undefined>;
  /** Stores a plan unless the run has one. Returns whether this one was stored. */
  storePlan(session: Session, plan: Plan): Promise<boolean>;
  /** The latest of the runs after this one; undefined where there is none. */
  laterRun(session: Session, runId: RunId): Promise<RunId | undefined>;
  isFinished(session: Session, runId: RunId): Promise<boolean>;
  /** SQL for conditions on a row `r` of the table of runs. */
  readonly where: RunConditions;
}

interface RunConditions {
  readonly isUnfinished: string;
  /** A later run of the same params was planned. */
  readonly hasLater: string;
  /** Attempts may still finish the run: it is neither published nor discarded, and has no later run. */
  readonly isOpen: string;
  readonly isHeld: string;
  readonly isRolledBack: string;
  isDecided(kind: Decision["kind"]): string;
}

export function controlOf(schema: string): Control {
  const table: Control["table"] = (name) => `${quoteName(schema)}.${name}`;
  const where = runConditions(table);
  return {
    schema,
    table,
    where,
    readPlan: (session, runId) => planBy(session, schema, `${table("runs")} WHERE run_id = $1`, runId),
    latestPlan: (session, base) =>
      planBy(session, schema, `${table("runs")} WHERE base = $1 ORDER BY number DESC LIMIT 1`, base),
    storePlan: (session, plan) => storePlan(session, table("runs"), plan),
    async laterRun(session, runId) {
      const { base, number } = splitRunId(runId);
      const { rows } = await session.query<{ number: number }>({
        text: `SELECT number FROM ${table("runs")} WHERE base = $1 AND number > $2 ORDER BY number DESC LIMIT 1`,
        values: [base, number],
      });
      return rows[0] === undefined ? undefined : numberedRunId(base, rows[0].number);
    },
    async isFinished(session, runId) {
      const { rows } = await session.query({
        text: `SELECT 1 FROM ${table("finishes")} WHERE run_id = $1`,
        values: [runId],
      });
      return rows.length > 0;
    },
  };
}

/** A run's plan as it is stored in a row. */
export interface PlanRow {
  readonly plan: string;
  readonly plan_id: string;
}

/**
 * Reads one run's plan.
 * @throws JobError OUTPUT_DAMAGED when it is not a plan that this version can read
 */
async function planBy(session: Session, schema: string, from: string, id: RunId): Promise<StoredPlan | undefined> {
  const { rows } = await session.query<PlanRow & { run_id: RunId }>({
    text: `SELECT run_id, plan, plan_id FROM ${from}`,
    values: [id],
  });
  const [row] = rows;
  if (row === undefined) {
    return undefined;
  }
  const pruned = parseTombstone(row.plan);
  if (pruned !== undefined) {
    return { plan: pruned.plan, planId: row.plan_id, pruned };
  }
  const stored = storedPlan(row);
  if (stored === undefined) {
    throw damagedRun(
      `reading run ${row.run_id} from ${schema}.runs: its plan is damaged, or of another version of infer-batch`,
      { hint: "restore it, or use that version", runId: row.run_id },
    );
  }
  return stored;
}

/** Parses the plan of a row; undefined if it is damaged, or another version of this program wrote it. */
export function storedPlan({ plan: text, plan_id: planId }: PlanRow): StoredPlan | undefined {
  const plan = sha256Of(text) === planId ? parsePlan(text) : undefined;
  return plan !== undefined && isPostgresPlan(plan) ? { plan, planId } : undefined;
}

/** Stores a plan unless the run has one. Returns whether it was stored. */
async function storePlan(session: Session, table: string, plan: Plan): Promise<boolean> {
  const text = planToText(plan);
  const { table: target, mode } = plannedTarget(plan);
  const { base, number } = splitRunId(plan.runId);
  const { rowCount } = await session.query({
    text: `INSERT INTO ${table} (run_id, base, number, plan_id, job, target, mode, rows_planned, spans_planned, plan, params, staged, logical_date)
          VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT DO NOTHING`,
    values: [
      plan.runId,
      base,
      number,
      sha256Of(text),
      plan.job,
      target,
      mode,
      plan.input.rows,
      spanCount(plan),
      text,
      JSON.stringify(plan.params),
      plan.staged,
      logicalDateOf(plan) ?? null,
    ],
  });
  return rowCount === 1;
}

/** SQL that writes a timestamp as ISO 8601 in UTC, as JavaScript does. */
export function utcText(expression: string): string {
  return `to_char(${expression} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;
}

function runConditions(table: Control["table"]): RunConditions {
  const isUnfinished = `NOT EXISTS (SELECT FROM ${table("finishes")} f WHERE f.run_id = r.run_id)`;
  const hasLater = `EXISTS (SELECT FROM ${table("runs")} l WHERE l.base = r.base AND l.number > r.number)`;
  const isDecided: RunConditions["isDecided"] = (kind) =>
    `EXISTS (SELECT FROM ${table("decisions")} d WHERE d.run_id = r.run_id AND d.kind = '${kind}')`;
  return {
    isUnfinished,
    hasLater,
    isOpen: `(${isUnfinished} AND NOT ${isDecided("discarded")} AND NOT ${hasLater})`,
    isHeld: `(r.staged AND EXISTS (SELECT FROM ${table("verdicts")} v WHERE v.run_id = r.run_id AND v.outcome = 'hold')
      AND NOT EXISTS (SELECT FROM ${table("decisions")} d WHERE d.run_id = r.run_id))`,
    isRolledBack: `EXISTS (SELECT FROM ${table("swaps")} w WHERE w.run_id = r.run_id AND w.action = 'rollback')`,
    isDecided,
  };
}

/** The error for damage to a run that a new run can replace. `hint`: another way to repair it. */
export function damagedRun(message: string, { hint, ...damage }: { readonly hint: string } & Damage): JobError {
  return new JobError("OUTPUT_DAMAGED", message, { hint: `${hint}, or start over with --new-run`, damage });
}
