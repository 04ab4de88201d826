import { JobError } from "../../../util/errors.js";
import type { Session } from "../connections.js";
import { showTable, type TableName } from "../names.js";
import { oidOf } from "./staging.js";

/**
 * SQL for the objects that would stay with the old table, or be lost, when a table is swapped by renaming. Views and
 * foreign keys follow a table's OID, not its name, and so do functions and columns that use its row type; triggers and
 * policies belong to one table.
 */
const dependents = `
  SELECT 'view ' || v.oid::regclass AS shown FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
    JOIN pg_class v ON v.oid = r.ev_class
    WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = $1 AND v.oid <> $1
  UNION SELECT format('foreign key %s of %s', conname, conrelid::regclass) FROM pg_constraint
    WHERE contype = 'f' AND confrelid = $1
  UNION SELECT 'function ' || objid::regprocedure FROM pg_depend
    WHERE classid = 'pg_proc'::regclass AND refclassid = 'pg_class'::regclass AND refobjid = $1
  UNION SELECT pg_describe_object(d.classid, d.objid, d.objsubid) FROM pg_class c JOIN pg_type t ON t.oid = c.reltype
    JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid IN (t.oid, t.typarray) AND d.deptype = 'n'
    WHERE c.oid = $1
  UNION SELECT 'row level security' FROM pg_class WHERE oid = $1 AND (relrowsecurity OR relforcerowsecurity)
  UNION SELECT 'replica identity by an index' FROM pg_class WHERE oid = $1 AND relreplident = 'i'
  UNION SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgrelid = $1 AND NOT tgisinternal
  UNION SELECT 'policy ' || polname FROM pg_policy WHERE polrelid = $1
  UNION SELECT 'rule ' || rulename FROM pg_rewrite WHERE ev_class = $1 AND rulename <> '_RETURN'
  UNION SELECT 'publication ' || pubname FROM pg_publication_rel JOIN pg_publication p ON p.oid = prpubid WHERE prrelid = $1
  UNION SELECT 'child table ' || inhrelid::regclass FROM pg_inherits WHERE inhparent = $1
  UNION SELECT 'parent table ' || inhparent::regclass FROM pg_inherits WHERE inhrelid = $1
  ORDER BY 1`;

/** Refuses to swap a table that other objects depend on. @throws JobError OUTPUT_MISMATCH that lists them */
export async function refuseDependents(
  session: Session,
  name: TableName,
  oid: number,
  { hint = "write output.postgres.swap: delete_insert, which exchanges the rows and keeps the table" } = {},
): Promise<void> {
  const { rows } = await session.query<{ shown: string }>({ text: dependents, values: [oid] });
  if (rows.length > 0) {
    throw new JobError(
      "OUTPUT_MISMATCH",
      `checking table ${showTable(name)}: it cannot be swapped by renaming, since these belong to it: ${rows.map(({ shown }) => shown).join(", ")}`,
      { hint },
    );
  }
}

/** Refuses to swap in a staging table that other objects, such as views, depend on. @throws JobError OUTPUT_MISMATCH */
export async function refuseIncoming(session: Session, staging: TableName): Promise<void> {
  const oid = await oidOf(session, staging);
  if (oid !== undefined) {
    await refuseDependents(session, staging, oid, {
      hint: "drop them, and run the same command again: they would belong to the target, which no later run could swap",
    });
  }
}

/**
 * Refuses to exchange rows without a key where foreign keys refer to them. All rows are deleted first: rows that refer
 * to them would be deleted, too (CASCADE), lose their reference (SET NULL), or prevent the deletion.
 * @throws JobError OUTPUT_MISMATCH
 */
export async function refuseReferred(session: Session, name: TableName, oid: number): Promise<void> {
  const { rows } = await session.query<{ shown: string }>({
    text: `SELECT format('%s of %s', conname, conrelid::regclass) AS shown FROM pg_constraint
      WHERE contype = 'f' AND confrelid = $1 AND conparentid = 0 ORDER BY 1`,
    values: [oid],
  });
  if (rows.length > 0) {
    throw new JobError(
      "OUTPUT_MISMATCH",
      `checking table ${showTable(name)}: foreign keys refer to its rows: ${rows.map(({ shown }) => shown).join(", ")}`,
      { hint: "write output.postgres.key: rows whose key stays then keep their place" },
    );
  }
}
