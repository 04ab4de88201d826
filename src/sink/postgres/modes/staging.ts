import type { RunId } from "../../../plan/plan.js";
import type { Session } from "../connections.js";
import { damagedRun } from "../damage.js";
import type { RowsNeeded } from "./mode.js";
import { quoteTable, showTable, type TableName } from "../names.js";

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

/** Makes a table like another one, in all that readers and writers notice, but without rows. */
export async function makeLike(session: Session, model: TableName, copy: TableName): Promise<void> {
  await makeRowTable(session, model, copy);
  await copyAttributes(session, model, copy);
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

export async function oidOf(session: Session, name: TableName): Promise<number | undefined> {
  const { rows } = await session.query<{ oid: number }>({
    text: `SELECT c.oid::int8::float8 AS oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = $1 AND c.relname = $2`,
    values: [name.schema, name.table],
  });
  return rows[0]?.oid;
}

/**
 * Checks that a staging table holds the rows that its run committed. `due`: SQL for their number, `$1` the run.
 * @throws JobError OUTPUT_DAMAGED
 */
export async function checkStaging(
  session: Session,
  {
    runId,
    staging,
    due,
    doing,
  }: {
    readonly runId: RunId;
    readonly staging: TableName;
    readonly due: string;
    readonly doing: RowsNeeded;
  },
): Promise<void> {
  if (doing !== "finishing" && !(await mayRead(session, staging))) {
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
      `${doing} run ${runId}: ${showTable(staging)} holds ${row?.there} rows, its spans gave ${row?.due}`,
      { hint: `the staging table was changed; restore it from a backup${discard}`, runId },
    );
  }
}

async function mayRead(session: Session, name: TableName): Promise<boolean> {
  const { rows } = await session.query<{ may: boolean | null }>({
    text: "SELECT has_table_privilege($1::oid, 'SELECT') AS may",
    values: [await oidOf(session, name)],
  });
  return rows[0]?.may === true;
}
