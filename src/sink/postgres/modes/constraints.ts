import type { Session } from "../connections.js";
import type { TableName } from "../names.js";
import { indexShape } from "./shape.js";
import { oidOf, runAll } from "./staging.js";

/**
 * SQL for statements that drop from table $2 the constraints, unique indexes and NOT NULLs that table $1 does not have.
 * Only constraints of the types $3 are dropped, unique indexes only if `u` is among these, and NOT NULL of the columns
 * $4 is kept. Constraints, also CHECK constraints, are compared without their names, unlike in `shape.ts`: copies may
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

/** The parts of a staging table that are copied from its target. */
export interface CopiedConstraints {
  /** Types of constraints, as in `pg_constraint.contype`. */
  readonly types: readonly string[];
  /** Key columns, which the staging table itself requires to be NOT NULL. */
  readonly key: readonly string[];
}

/** All constraints: LIKE copies all but foreign keys, which are copied if the table is swapped by renaming. */
export const allConstraints: CopiedConstraints = { types: ["c", "f", "p", "u", "x"], key: [] };

/**
 * Drops from a staging table the constraints that were dropped from the target after the copy. Otherwise rows that the
 * target now accepts could not be staged. Constraints that were added to the target are enforced when the rows are
 * published. The caller has locked the run; the statements wait for spans that are being committed. Safe to repeat.
 */
export async function dropOutdated(
  session: Session,
  { target, staging }: { readonly target: TableName; readonly staging: TableName },
  { types, key }: CopiedConstraints,
): Promise<void> {
  const { rows } = await session.query<{ sql: string }>({
    text: outdated,
    values: [await oidOf(session, target), await oidOf(session, staging), types, key],
  });
  await runAll(session, rows);
}
