import { JobError } from "../../errors.js";
import type { Plan } from "../../plan/plan.js";
import type { Session } from "./connections.js";
import type { Control } from "./control.js";
import { quoteTable, showTable, type TableName } from "./names.js";

/** SQL for a digest that names the files of a table's rows, its partitions' too. `oid`: SQL for the table's. */
export function filesSql(oid: string): string {
  return `(SELECT md5(coalesce(string_agg(pg_relation_filenode(relid)::text, ' ' ORDER BY relid::oid), ''))
    FROM (SELECT relid FROM pg_partition_tree(${oid}) UNION SELECT ${oid}::regclass) AS tables)`;
}

interface Emptied {
  readonly name: TableName;
  readonly control: Control;
  readonly plan: Plan;
  /** SQL for the number of rows that the run has put into the table. `$1`: the run. */
  readonly due: string;
}

/**
 * Before a run is finished that wrote into a table span by span: whether somebody emptied that meanwhile. TRUNCATE
 * gives a table other files, as VACUUM FULL, CLUSTER and ALTER TABLE do, which keep the rows. So rows are counted when
 * the files are others than those that took the spans, and never in a run that nobody disturbed. Fewer than the run
 * has put there cannot be all of its rows.
 * @throws JobError OUTPUT_DAMAGED
 */
export async function refuseEmptied(session: Session, { name, control, plan, due }: Emptied): Promise<void> {
  const spans = control.table("spans");
  // Who may not read the table, or not all of its rows, cannot count them.
  const { rows } = await session.query<{ files: string }>({
    text: `SELECT files FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, LATERAL (SELECT ${filesSql("c.oid")} AS files) AS f
      WHERE n.nspname = $2 AND c.relname = $3
        AND EXISTS (SELECT FROM ${spans} s WHERE s.run_id = $1 AND s.rows > 0 AND s.table_files <> files)
        AND has_table_privilege(c.oid, 'SELECT') AND NOT row_security_active(c.oid)`,
    values: [plan.runId, name.schema, name.table],
  });
  const [other] = rows;
  if (other === undefined) {
    return;
  }
  await session.query("SET LOCAL statement_timeout = 0"); // how long it takes is no sign of trouble
  const counted = await session.query<{ there: string; due: string }>({
    text: `SELECT (SELECT count(*) FROM ${quoteTable(name)}) AS there, (${due})::int8 AS due FROM (SELECT $1::text) AS run`,
    values: [plan.runId],
  });
  const [row] = counted.rows;
  if (row !== undefined && BigInt(row.there) < BigInt(row.due)) {
    const kept = `UPDATE ${spans} SET table_files = '${other.files}' WHERE run_id = '${plan.runId}'`;
    throw new JobError(
      "OUTPUT_DAMAGED",
      `finishing run ${plan.runId}: ${showTable(name)} holds ${row.there} rows, and the run has put ${row.due} there`,
      {
        hint: `somebody emptied it meanwhile: remove the run from the tables in ${control.schema} and run the same command again. If rows were taken away on purpose: ${kept}`,
      },
    );
  }
}
