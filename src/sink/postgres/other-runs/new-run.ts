import { JobError } from "../../../util/errors.js";
import type { Session } from "../connections.js";
import { quoteTable, showTable, type TableName } from "../names.js";
import { findTable, readsAllRows } from "../table.js";
import { splitRunId } from "../../../plan/identity.js";
import type { RunId } from "../../../plan/plan.js";
import { splitTable } from "../../../spec/postgres-spec.js";
import { type Control, runConditions } from "../control/control.js";

/**
 * Refuses a new run in mode append where the table holds rows: the new run would add the same rows again. Only an empty
 * table has none of them. The attempt that plans the run checks this alone behind the fence around the runs, so that no
 * row of an earlier run can come later.
 * @throws JobError USAGE
 */
export async function refuseDuplicates(session: Session, name: TableName): Promise<void> {
  // A role that may not read all rows cannot tell that there are none.
  const readable = await session.query<{ readable: boolean }>({
    text: `SELECT ${readsAllRows} AS readable
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`,
    values: [name.schema, name.table],
  });
  const [table] = readable.rows;
  if (table === undefined || (table.readable && !(await holdsRows(session, name)))) {
    return;
  }
  throw new JobError(
    "USAGE",
    `opening a new run: output.postgres.mode is append, and ${showTable(name)} keeps the rows of the runs before`,
    {
      hint: "use mode upsert or replace, which accept new runs; or empty the table; or delete those rows, or accept each row twice, and add --allow-duplicates",
    },
  );
}

async function holdsRows(session: Session, name: TableName): Promise<boolean> {
  const { rows } = await session.query(`SELECT FROM ${quoteTable(name)} LIMIT 1`);
  return rows.length > 0;
}

/**
 * Refuses a new run in place of one whose rows are for another table, which may be another job's of the same name: that job
 * could not finish its run, and would add its rows again. Admitted if its table is gone, which may have been renamed; if the
 * run is published, discarded or superseded; and if it has neither committed spans nor an approval.
 * @throws JobError PLAN_CHANGED
 */
export async function refuseTakingOver(
  session: Session,
  { table }: Control,
  { runId, target }: { readonly runId: RunId; readonly target: string },
): Promise<void> {
  const { base, number } = splitRunId(runId);
  const { isUnfinished, isDecided } = runConditions(table);
  const { rows } = await session.query<{ run_id: RunId; target: string; job: string; approved: boolean }>({
    text: `SELECT run_id, target, job, approved FROM (
        SELECT r.*, ${isDecided("approved")} AS approved FROM ${table("runs")} r WHERE base = $1 AND number < $2
        ORDER BY number DESC LIMIT 1) r
      WHERE target <> $3 AND ${isUnfinished} AND NOT ${isDecided("discarded")} AND NOT ${isDecided("superseded")}
        AND (approved OR EXISTS (SELECT 1 FROM ${table("spans")} s WHERE s.run_id = r.run_id))`,
    values: [base, number, target],
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
