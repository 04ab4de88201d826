import { createHash } from "node:crypto";
import { JobError } from "../../errors.js";
import { parsePlan, planToText } from "../../plan/parse-plan.js";
import type { Plan, RunId } from "../../plan/plan.js";
import { spanAt, spanCount } from "../../plan/spans.js";
import type { StoredPlan } from "../port.js";
import type { Session } from "./connections.js";
import { quoteName } from "./names.js";

/** Reads and inserts rows of the control tables; each call is a statement or two on the session it is given. */
export interface Control {
  readonly schema: string;
  /** `"infer_batch".spans` */
  table(name: "runs" | "attempts" | "spans" | "rejects" | "finishes" | "errors" | "swaps"): string;
  readPlan(session: Session, runId: RunId): Promise<StoredPlan | undefined>;
  storePlan(session: Session, plan: Plan): Promise<void>;
  /** @throws JobError OUTPUT_DAMAGED when a row is not of the plan */
  readSpans(session: Session, stored: StoredPlan): Promise<CommittedSpans>;
  isFinished(session: Session, runId: RunId): Promise<boolean>;
}

export interface CommittedSpans {
  /** One byte a span, 1 = committed. */
  readonly committed: Uint8Array;
  readonly rejectedRows: number;
}

export function controlOf(schema: string): Control {
  const table: Control["table"] = (name) => `${quoteName(schema)}.${name}`;
  return {
    schema,
    table,
    async readPlan(session, runId) {
      const { rows } = await session.query<{ plan: string; plan_id: string }>({
        text: `SELECT plan, plan_id FROM ${table("runs")} WHERE run_id = $1`,
        values: [runId],
      });
      const [row] = rows;
      if (row === undefined) {
        return undefined;
      }
      const plan = parsePlan(row.plan);
      if (plan === undefined || plan.target.kind !== "postgres" || planIdOf(row.plan) !== row.plan_id) {
        throw new JobError(
          "OUTPUT_DAMAGED",
          `reading run ${runId} from ${schema}.runs: it is not a plan of this program`,
          {
            hint: "it was damaged or written by a newer version",
          },
        );
      }
      return { plan, planId: row.plan_id };
    },
    storePlan: (session, plan) => storePlan(session, table("runs"), plan),
    async readSpans(session, stored) {
      const { rows } = await session.query<SpanRow>({
        text: `SELECT span, plan_id, row_start, row_end, rows, rejected, filtered FROM ${table("spans")} WHERE run_id = $1`,
        values: [stored.plan.runId],
      });
      return checkSpans(stored, rows, schema);
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

/** Keeps the plan unless there is one. */
async function storePlan(session: Session, table: string, plan: Plan): Promise<void> {
  const text = planToText(plan);
  const { target } = plan;
  await session.query({
    text: `INSERT INTO ${table} (run_id, plan_id, job, target, mode, rows_planned, spans_planned, plan)
          VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (run_id) DO NOTHING`,
    values: [
      plan.runId,
      planIdOf(text),
      plan.job,
      target.kind === "postgres" ? target.table : target.uri,
      target.kind === "postgres" ? target.mode : target.kind,
      plan.input.rows,
      spanCount(plan),
      text,
    ],
  });
}

/** int8 comes as text. */
interface SpanRow {
  readonly span: number;
  readonly plan_id: string;
  readonly row_start: string;
  readonly row_end: string;
  readonly rows: string;
  readonly rejected: string;
  readonly filtered: string;
}

function checkSpans({ plan, planId }: StoredPlan, rows: readonly SpanRow[], schema: string): CommittedSpans {
  const committed = new Uint8Array(spanCount(plan));
  let rejectedRows = 0;
  for (const row of rows) {
    const { rowStart, rowEnd } = spanAt(plan, row.span);
    const counted = Number(row.rows) + Number(row.rejected) + Number(row.filtered);
    if (
      row.plan_id !== planId ||
      row.span >= committed.length ||
      Number(row.row_start) !== rowStart ||
      Number(row.row_end) !== rowEnd ||
      counted !== rowEnd - rowStart
    ) {
      throw new JobError(
        "OUTPUT_DAMAGED",
        `looking at ${schema}.spans: span ${row.span} of run ${plan.runId} is not of its plan`,
        { hint: "somebody changed the control tables; restore them" },
      );
    }
    committed[row.span] = 1;
    rejectedRows += Number(row.rejected);
  }
  return { committed, rejectedRows };
}

function planIdOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
