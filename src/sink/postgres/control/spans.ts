import { z } from "../../../util/zod.js";
import type { Span } from "../../../plan/plan.js";
import { spanAt, spanCount } from "../../../plan/spans.js";
import type { StoredPlan } from "../../port.js";
import type { CommittedBy } from "../../../publish/committed-by.js";
import type { Session } from "../connections.js";
import type { Control } from "./control.js";
import { damagedRun } from "../damage.js";
import { showTable, type TableName } from "../names.js";
import { filesSql } from "./emptied-table.js";
import { committedAtSql } from "./swaps.js";

/** A committed span, as its control row describes it. */
export interface CommittedSpan {
  readonly span: number;
  readonly rows: number;
  readonly rejected: number;
  readonly filtered: number;
  readonly committedBy: CommittedBy;
  /** OID of the table that took its rows. */
  readonly table: number;
}

/** A control row without its run. int8 comes as text. */
const schema = z.object({
  span: z.int(),
  plan_id: z.string(),
  row_start: z.coerce.number(),
  row_end: z.coerce.number(),
  rows: z.coerce.number(),
  rejected: z.coerce.number(),
  filtered: z.coerce.number(),
  writer: z.string(),
  worker: z.int(),
  workers: z.int(),
  program: z.string(),
  provider: z.string(),
  batch_size: z.int(),
  on_bad_row: z.enum(["fail", "reject"]),
  table_oid: z.int(),
});

const columns = schema.keyof().options;

/** The columns of a control row, for a query that calls the table `s`. */
export const spanColumns = columns.map((column) => `s.${column}`).join(", ");

/** Reads the committed spans of a run. @throws JobError OUTPUT_DAMAGED when a row does not match the plan */
export async function readSpans(session: Session, control: Control, stored: StoredPlan): Promise<CommittedSpan[]> {
  const { rows } = await session.query({
    text: `SELECT ${spanColumns} FROM ${control.table("spans")} s WHERE s.run_id = $1`,
    values: [stored.plan.runId],
  });
  return rows.map((row) => committedSpan(control, stored, row));
}

/** Parses a control row. @throws JobError OUTPUT_DAMAGED when it does not match the plan */
export function committedSpan(control: Control, { plan, planId }: StoredPlan, row: unknown): CommittedSpan {
  const { data } = schema.safeParse(row);
  const due = data === undefined || data.span >= spanCount(plan) ? undefined : spanAt(plan, data.span);
  if (
    data === undefined ||
    data.plan_id !== planId ||
    data.row_start !== due?.rowStart ||
    data.row_end !== due.rowEnd ||
    data.rows + data.rejected + data.filtered !== due.rowEnd - due.rowStart
  ) {
    const which = data === undefined ? "a span" : `span ${data.span}`;
    throw damagedRun(`reading ${control.schema}.spans: ${which} of run ${plan.runId} is not of its plan`, {
      hint: "the control tables were changed; restore them from a backup",
      runId: plan.runId,
    });
  }
  const { writer, worker, workers, program, provider, batch_size: batchSize, on_bad_row: onBadRow } = data;
  const committedBy = { writer, worker, workers, program, provider, batchSize, onBadRow };
  const { span, rows, rejected, filtered, table_oid: table } = data;
  return { span, rows, rejected, filtered, committedBy, table };
}

/** A run's target, and the number of its last swap when the attempt began. */
export interface SeenSwaps {
  readonly target: TableName;
  readonly last: string;
}

/**
 * SQL for a span's `committed_at`, and for whether its target was swapped since the attempt began. `first` is the
 * number of its first parameter.
 */
function swapSql(
  control: Control,
  swaps: SeenSwaps | undefined,
  first: number,
): { readonly at: string; readonly isSwapped: string; readonly values: readonly string[] } {
  if (swaps === undefined) {
    return { at: "DEFAULT", isSwapped: "false", values: [] };
  }
  const [target, last] = [`$${first}`, `$${first + 1}::int8`];
  return {
    at: committedAtSql(control, { target, last }),
    isSwapped: `EXISTS (SELECT FROM ${control.table("swaps")} w WHERE w.n > ${last} AND w.target = ${target})`,
    values: [showTable(swaps.target), swaps.last],
  };
}

/**
 * Inserts a span's control row, which commits the span with the transaction. Returns whether the target was swapped
 * since the attempt began.
 */
export async function insertSpan(
  session: Session,
  control: Control,
  {
    stored: { plan, planId },
    span: { index, rowStart, rowEnd },
    counts: { rows, rejected, filtered },
    committedBy: { writer, worker, workers, program, provider, batchSize, onBadRow },
    profile,
    table,
    swaps,
  }: {
    readonly stored: StoredPlan;
    readonly span: Span;
    readonly counts: { readonly rows: number; readonly rejected: number; readonly filtered: number };
    readonly committedBy: CommittedBy;
    readonly profile: string;
    readonly table: number;
    /** Undefined if the run stages its rows outside the target. */
    readonly swaps: SeenSwaps | undefined;
  },
): Promise<boolean> {
  const row: z.infer<typeof schema> = {
    span: index,
    plan_id: planId,
    row_start: rowStart,
    row_end: rowEnd,
    rows,
    rejected,
    filtered,
    writer,
    worker,
    workers,
    program,
    provider,
    batch_size: batchSize,
    on_bad_row: onBadRow,
    table_oid: table,
  };
  const values = [plan.runId, ...columns.map((column) => row[column]), profile];
  const swapped = swapSql(control, swaps, values.length + 1);
  const inserted = await session.query<{ swapped: boolean }>({
    text: `INSERT INTO ${control.table("spans")} (run_id, ${columns.join(", ")}, profile, table_files, committed_at)
      VALUES (${values.map((_, at) => `$${at + 1}`).join(", ")}, ${filesSql(`$${columns.length + 1}::oid`)}, ${swapped.at})
      RETURNING ${swapped.isSwapped} AS swapped`,
    values: [...values, ...swapped.values],
  });
  return inserted.rows[0]?.swapped === true;
}
