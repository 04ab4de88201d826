import type { Plan } from "../../../run/plan/plan.js";
import type { Session } from "../connections.js";
import { type Control, damagedRun } from "../control.js";
import type { RowsNeeded } from "./mode.js";
import { collationName, findTable, oidOf, quoteTable, showTable, type TableName } from "../table.js";
import { JobError } from "../../../base/errors.js";

/**
 * SQL for statements that copy what LIKE does not: owner, grants, foreign keys, storage parameters, replica identity,
 * comment. Safe to repeat. $1: the model, $2: the copy, as OIDs.
 */
const furnishing = `
  WITH model AS (SELECT * FROM pg_class WHERE oid = $1), copy AS (SELECT * FROM pg_class WHERE oid = $2),
  grants AS (
    SELECT a.*, '' AS cols FROM model, aclexplode(model.relacl) a
    UNION ALL
    SELECT a.*, format(' (%I)', attname) FROM pg_attribute, aclexplode(attacl) a WHERE attrelid = $1 AND NOT attisdropped)
  SELECT 1 AS n, format('ALTER TABLE %s OWNER TO %I', $2::regclass, pg_get_userbyid(model.relowner)) AS sql
    FROM model, copy WHERE model.relowner <> copy.relowner
  UNION ALL SELECT 2, format('REVOKE ALL ON %s FROM %s', $2::regclass, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END)
    FROM (SELECT DISTINCT grantee FROM copy, aclexplode(copy.relacl)) a, model WHERE a.grantee <> model.relowner
  UNION ALL SELECT 3, format('GRANT %s%s ON %s TO %s%s', g.privilege_type, g.cols, $2::regclass,
      CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END,
      CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
    FROM grants g, model WHERE g.grantee <> model.relowner
  UNION ALL SELECT 4, format('ALTER TABLE %s ADD CONSTRAINT %I %s', $2::regclass, conname, pg_get_constraintdef(oid))
    FROM pg_constraint c WHERE conrelid = $1 AND contype = 'f' AND conparentid = 0
      AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = $2 AND k.conname = c.conname)
  UNION ALL SELECT 5, format('ALTER TABLE %s SET (%s)', $2::regclass, array_to_string(reloptions, ', '))
    FROM model WHERE reloptions IS NOT NULL
  UNION ALL SELECT 6, format('COMMENT ON TABLE %s IS %L', $2::regclass, obj_description($1, 'pg_class'))
    WHERE obj_description($1, 'pg_class') IS NOT NULL
  UNION ALL SELECT 7, format('ALTER TABLE %s REPLICA IDENTITY %s', $2::regclass, CASE model.relreplident WHEN 'f' THEN 'FULL' ELSE 'NOTHING' END)
    FROM model, copy WHERE model.relreplident IN ('f', 'n') AND copy.relreplident <> model.relreplident
  ORDER BY 1`;

/** Makes a table that can hold the rows of another one: columns, defaults, checks, indexes. */
export async function makeRowTable(session: Session, model: TableName, copy: TableName): Promise<void> {
  await session.query(`CREATE TABLE ${quoteTable(copy)} (LIKE ${quoteTable(model)} INCLUDING ALL)`);
}

/** Copies grants, comments and the like that were added to the model since the copy was made. */
export async function copyAttributes(session: Session, model: TableName, copy: TableName): Promise<void> {
  const oids = [await oidOf(session, model), await oidOf(session, copy)];
  const { rows } = await session.query<{ sql: string }>({ text: furnishing, values: oids });
  await runAll(session, rows);
}

export async function runAll(session: Session, statements: readonly { readonly sql: string }[]): Promise<void> {
  for (const { sql } of statements) {
    await session.query(sql);
  }
}

export function stagingGone(staging: TableName, { runId }: Plan): JobError {
  return damagedRun(
    runId,
    `checking table ${showTable(staging)}: the staging table is gone`,
    "it was removed; restore it from a backup",
  );
}

/** SQL for the number of rows that the committed spans of run $1 gave. */
export function spanRowsSql({ table }: Control): string {
  return `SELECT sum(rows) FROM ${table("spans")} WHERE run_id = $1`;
}

/**
 * Checks that a staging table holds the rows that its run committed. `due`: SQL for their number, `$1` the run.
 * @throws JobError OUTPUT_DAMAGED
 */
export async function checkStaging(
  session: Session,
  { runId }: Plan,
  staging: TableName,
  due: string,
  doing: RowsNeeded,
): Promise<void> {
  if (doing !== "finishing" && (await findTable(session, staging))?.readable !== true) {
    return; // another role's approval is kept, and an attempt that may read the rows publishes them
  }
  await session.query("SET LOCAL statement_timeout = 0"); // to count all rows may take longer than the limit of a statement
  const { rows } = await session.query<{ there: string; due: string }>({
    text: `SELECT (SELECT count(*) FROM ${quoteTable(staging)}) AS there, coalesce((${due}), 0)::int8 AS due
      FROM (SELECT $1::text) AS run`,
    values: [runId],
  });
  const [row] = rows;
  if (row?.there !== row?.due) {
    const discard = doing === "approving" ? ", or discard the run" : "";
    throw damagedRun(
      runId,
      `${doing} run ${runId}: ${showTable(staging)} holds ${row?.there} rows, its spans gave ${row?.due}`,
      `the staging table was changed; restore it from a backup${discard}`,
    );
  }
}

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
export async function refuseOtherShape(session: Session, target: TableName, staging: TableName): Promise<void> {
  const oids = [await oidOf(session, target), await oidOf(session, staging)];
  const lacking = async (values: readonly (number | undefined)[]): Promise<string[]> =>
    (await session.query<{ fact: string }>({ text: missing, values: [...values] })).rows.map(({ fact }) => fact);
  const added = await lacking(oids);
  const gone = await lacking(oids.toReversed());
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

/**
 * SQL for statements that drop from table $2 the constraints, unique indexes and NOT NULLs that table $1 does not have.
 * Only constraints of the types $3 are dropped, unique indexes only if `u` is among these, and NOT NULL of the columns
 * $4 is kept. Constraints, also CHECK constraints, are compared without their names, unlike in `missing`: copies may
 * have other names.
 */
const outdated = `
  WITH constraints AS (SELECT conrelid AS of, conname, contype, conparentid, replace(pg_get_constraintdef(oid), ' NOT VALID', '') AS def
      FROM pg_constraint WHERE conrelid IN ($1, $2) AND contype::text = ANY ($3::text[])),
    indexes AS (SELECT indrelid AS of, indexrelid, ${indexShape} AS shape,
        EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid AND k.conrelid = i.indrelid) AS constrained
      FROM pg_index i WHERE indrelid IN ($1, $2) AND indisunique AND 'u' = ANY ($3::text[])),
    columns AS (SELECT attrelid AS of, attname, attnotnull, attidentity FROM pg_attribute
      WHERE attrelid IN ($1, $2) AND attnum > 0 AND NOT attisdropped)
  SELECT 1 AS n, format('ALTER TABLE %s DROP CONSTRAINT %I', $2::regclass, conname) AS sql FROM constraints s
    WHERE of = $2 AND conparentid = 0
      AND NOT EXISTS (SELECT FROM constraints t WHERE t.of = $1 AND t.contype = s.contype AND t.def = s.def)
  UNION ALL SELECT 2, format('DROP INDEX %s', indexrelid::regclass) FROM indexes s
    WHERE of = $2 AND NOT constrained AND NOT EXISTS (SELECT FROM indexes t WHERE t.of = $1 AND t.shape = s.shape)
  UNION ALL SELECT 3, format('ALTER TABLE %s ALTER %I DROP NOT NULL', $2::regclass, s.attname)
    FROM columns s JOIN columns t ON t.attname = s.attname AND t.of = $1
    WHERE s.of = $2 AND s.attnotnull AND s.attidentity = '' AND NOT t.attnotnull AND NOT s.attname = ANY ($4::text[])
  ORDER BY n`;

/** LIKE copies all constraints but foreign keys, which are copied if the table is swapped by renaming. */
export const allConstraints = ["c", "f", "p", "u", "x"];

/**
 * Drops from a staging table the constraints that were dropped from the target after the copy. Otherwise rows that the
 * target now accepts could not be staged. Constraints that were added to the target are enforced when the rows are
 * published. The caller has locked the run; the statements wait for spans that are being committed. Safe to repeat.
 * @param types those that were copied, as in `pg_constraint.contype`
 * @param key columns that the staging table itself requires to be NOT NULL
 */
export async function dropOutdated(
  session: Session,
  target: TableName,
  staging: TableName,
  types: readonly string[],
  key: readonly string[],
): Promise<void> {
  const { rows } = await session.query<{ sql: string }>({
    text: outdated,
    values: [await oidOf(session, target), await oidOf(session, staging), types, key],
  });
  await runAll(session, rows);
}
