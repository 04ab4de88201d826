import { JobError } from "../../../util/errors.js";
import type { Session } from "../connections.js";
import { showTable, type TableName } from "../names.js";
import { collationName } from "../table.js";

/** SQL for the shape of an index, all but its name. `i`: its row of `pg_index`. */
export const indexShape = `concat_ws(' ', CASE WHEN i.indisprimary THEN 'primary' WHEN i.indisunique THEN 'unique' END, 'index',
  substr(pg_get_indexdef(i.indexrelid), strpos(pg_get_indexdef(i.indexrelid), ' USING ') + 1),
  (SELECT 'of a constraint' FROM pg_constraint k WHERE k.conindid = i.indexrelid AND k.conrelid = i.indrelid))`;

/** SQL for columns, constraints and indexes of table $1 that table $2 does not have. */
const missing = `
  WITH facts AS (
    SELECT attrelid AS of, concat_ws(' ', 'column', quote_ident(attname), format_type(atttypid, atttypmod),
        CASE WHEN attcollation <> 0 THEN 'COLLATE ' || ${collationName} END, CASE WHEN attnotnull THEN 'NOT NULL' END,
        'DEFAULT ' || pg_get_expr(adbin, adrelid), nullif('generated ' || attgenerated::text, 'generated '),
        nullif('identity ' || attidentity::text, 'identity ')) AS fact
      FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
      WHERE attrelid IN ($1, $2) AND attnum > 0 AND NOT attisdropped
    UNION ALL SELECT conrelid, concat_ws(' ', 'constraint', CASE WHEN contype IN ('c', 'f') THEN quote_ident(conname) END,
        replace(pg_get_constraintdef(oid), ' NOT VALID', ''))
      FROM pg_constraint WHERE conrelid IN ($1, $2) AND contype <> 'n'
    UNION ALL SELECT indrelid, ${indexShape} FROM pg_index i WHERE indrelid IN ($1, $2))
  SELECT fact FROM facts WHERE of = $1 EXCEPT ALL SELECT fact FROM facts WHERE of = $2 ORDER BY 1`;

/**
 * Compares two tables just before they exchange names: a change that was made to only one of them would be lost.
 * @throws JobError OUTPUT_MISMATCH
 */
export async function refuseOtherShape(
  session: Session,
  { target, staging }: { readonly target: TableName; readonly staging: TableName },
  oids: { readonly target: number | undefined; readonly staging: number | undefined },
): Promise<void> {
  const lacking = async (one: number | undefined, other: number | undefined): Promise<string[]> =>
    (await session.query<{ fact: string }>({ text: missing, values: [one, other] })).rows.map(({ fact }) => fact);
  const added = await lacking(oids.target, oids.staging);
  const gone = await lacking(oids.staging, oids.target);
  if (added.length + gone.length > 0) {
    const found = [...added.map((fact) => `it has ${fact}`), ...gone.map((fact) => `it has no ${fact}`)].join("; ");
    throw new JobError(
      "OUTPUT_MISMATCH",
      `checking table ${showTable(target)}: it is not what it was when ${showTable(staging)} was made like it: ${found}`,
      {
        hint: `do the same to ${showTable(staging)}, or write output.postgres.swap: delete_insert, which keeps the table; then run the same command again`,
      },
    );
  }
}
