import { JobError } from "../../../util/errors.js";
import type { Plan } from "../../../plan/plan.js";
import type { Session } from "../connections.js";
import type { Control } from "./control.js";
import { quoteTable, showTable, type TableName } from "../names.js";
import { readsAllRows } from "../table.js";
import { plannedTarget } from "../target.js";

/** SQL for a digest that names the files of a table's rows, and of its partitions. `oid`: SQL for the table's OID. */
export function filesSql(oid: string): string {
  return `(SELECT md5(coalesce(string_agg(pg_relation_filenode(relid)::text, ' ' ORDER BY relid::oid), ''))
    FROM (SELECT relid FROM pg_partition_tree(${oid}) UNION SELECT ${oid}::regclass) AS tables)`;
}

interface Written {
  readonly name: TableName;
  readonly control: Control;
  readonly plan: Plan;
}

/**
 * Detects that a table may have been emptied since a run wrote spans into it. Returns the digest of its files where
 * they differ from those that took the spans. TRUNCATE gives a table new files; so do VACUUM FULL, CLUSTER and ALTER
 * TABLE, which keep the rows. Returns undefined where the files are the same, or where this role may not read all rows.
 */
export async function changedFiles(session: Session, { name, control, plan }: Written): Promise<string | undefined> {
  const { rows } = await session.query<{ files: string }>({
    text: `SELECT files FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, LATERAL (SELECT ${filesSql("c.oid")} AS files) AS f
      WHERE n.nspname = $2 AND c.relname = $3
        AND EXISTS (SELECT FROM ${control.table("spans")} s WHERE s.run_id = $1 AND s.rows > 0 AND s.table_files <> files)
        AND ${readsAllRows}`,
    values: [plan.runId, name.schema, name.table],
  });
  return rows[0]?.files;
}

interface Counted {
  readonly there: string;
  readonly due: string;
  readonly since: string;
}

/**
 * Counts the rows of a table whose files have changed, which never happens in an undisturbed run. A table with fewer
 * rows than the run has written has lost some. `doing`: the act, for messages. `due`: SQL for how many rows the run has
 * written, `$1` the run.
 * @throws JobError OUTPUT_DAMAGED
 */
export async function refuseEmptied(
  session: Session,
  { name, control, plan, doing, due, files }: Written & { doing: string; due: string; files: string },
): Promise<void> {
  const spans = control.table("spans");
  await session.query("SET LOCAL statement_timeout = 0"); // a count may take longer than the limit of a statement
  const { rows } = await session.query<Counted>({
    text: `SELECT (SELECT count(*) FROM ${quoteTable(name)}) AS there, (${due})::int8 AS due,
      (SELECT coalesce(sum(rows), 0)::int8 FROM ${spans} WHERE run_id = $1 AND table_files = $2) AS since
      FROM (SELECT $1::text) AS run`,
    values: [plan.runId, files],
  });
  const [row] = rows;
  if (row === undefined || BigInt(row.there) >= BigInt(row.due)) {
    return;
  }
  const kept = `UPDATE ${spans} SET table_files = '${files}' WHERE run_id = '${plan.runId}'`;
  const found = `${doing}: ${showTable(name)} holds ${row.there} rows, and the run has put ${row.due} there`;
  throw new JobError("OUTPUT_DAMAGED", found, {
    hint: `it was emptied during the run. ${repairHint(plan, name, row)}. If rows were removed on purpose: ${kept}`,
    damage: { runId: plan.runId },
  });
}

/** Says how to get all rows of the run into the table again, each once. */
function repairHint(plan: Plan, name: TableName, { there, since }: Counted): string {
  const again = "run --new-run";
  if (there === "0" || plannedTarget(plan).mode !== "append") {
    return `To score all rows again: ${again}`;
  }
  const left = since === "0" ? "" : `${since} of its rows are of spans that were committed since. `;
  return `${left}To score all rows again: TRUNCATE ${quoteTable(name)}, then ${again}; where other rows must stay, delete those of this run instead, and add --allow-duplicates`;
}
