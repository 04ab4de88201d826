import type { Session } from "../connections.js";
import { showTable, type TableName } from "../names.js";

/** What an object that depends on the table `c` is called. Objects that are dropped with the table do not keep it. */
const dependents = `
  SELECT DISTINCT coalesce('view ' || r.ev_class::regclass, pg_describe_object(d.classid, d.objid, 0)) AS shown
  FROM pg_depend d LEFT JOIN pg_type t ON t.oid = c.reltype
    LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
  WHERE d.deptype = 'n' AND (d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
      OR d.refclassid = 'pg_type'::regclass AND d.refobjid IN (t.oid, t.typarray))
    AND NOT EXISTS (SELECT FROM pg_depend own WHERE (own.classid, own.objid) = (d.classid, d.objid)
      AND own.refclassid = 'pg_class'::regclass AND own.refobjid = c.oid AND own.deptype IN ('a', 'i'))`;

interface FoundTable extends TableName {
  readonly bytes: number;
  /** Why this role cannot drop it; null: nothing that its owner and its dependents tell. */
  readonly keptBy: string | null;
}

/** Returns the tables that exist, of any owner, by their shown names. */
export async function lookAtTables(
  session: Session,
  names: readonly TableName[],
): Promise<ReadonlyMap<string, FoundTable>> {
  const { rows } = await session.query<Omit<FoundTable, "bytes"> & { readonly bytes: string }>({
    text: `SELECT w.schema, w.table, pg_total_relation_size(c.oid) AS bytes,
        CASE WHEN pg_has_role(c.relowner, 'USAGE') OR pg_has_role(n.nspowner, 'USAGE')
          THEN (SELECT string_agg(shown, ', ' ORDER BY shown) || ' depends on it' FROM (${dependents}) d)
          ELSE 'it belongs to ' || pg_get_userbyid(c.relowner) END AS "keptBy"
      FROM unnest($1::text[], $2::text[]) AS w (schema, "table")
      JOIN pg_namespace n ON n.nspname = w.schema JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.table`,
    values: [names.map(({ schema }) => schema), names.map(({ table }) => table)],
  });
  return new Map(rows.map((row) => [showTable(row), { ...row, bytes: Number(row.bytes) }]));
}
