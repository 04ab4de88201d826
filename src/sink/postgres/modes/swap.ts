import { JobError } from "../../../util/errors.js";
import type { Session } from "../connections.js";
import { derivedName, quoteName, quoteTable, shortHash, showTable, type TableName } from "../names.js";
import { indexShape, makeRowTable, oidOf, runAll } from "./staging.js";
import { findTable } from "../table.js";
import { onConflict } from "./upsert.js";

/** A free name for a table that is kept: `suffix` and a digest. */
export async function freeName(session: Session, target: TableName, suffix: string, runId: string): Promise<TableName> {
  for (let n = 1; ; n += 1) {
    const name = derivedName(target, `${suffix}_${shortHash(`${showTable(target)} ${runId} ${n}`)}`);
    if ((await findTable(session, name)) === undefined) {
      return name;
    }
  }
}

/**
 * Gives `incoming` the target's name, and the target the name `kept`. Indexes, their constraints and owned sequences
 * exchange names, too. The caller holds the locks. Indexes are matched by their shape: after a REINDEX CONCURRENTLY
 * their OIDs are in another order.
 */
export async function exchangeNames(
  session: Session,
  { target, incoming, kept }: { target: TableName; incoming: TableName; kept: TableName },
): Promise<void> {
  const [old, fresh] = [await oidOf(session, target), await oidOf(session, incoming)];
  const names = await session.query<{ sql: string }>({
    text: `WITH i AS (SELECT indrelid, indexrelid::regclass AS index, relname, shape, row_number() OVER (PARTITION BY indrelid, shape ORDER BY indexrelid) AS n
        FROM (SELECT *, ${indexShape} AS shape FROM pg_index i WHERE indrelid IN ($1, $2)) AS s JOIN pg_class ON oid = indexrelid),
      pairs AS (SELECT o.n, o.index AS old, o.relname AS name, f.index AS fresh, f.relname AS other,
          left(o.relname, 12) || '_' || substr(md5($3::text || o.relname), 1, 12) AS parked
        FROM i o JOIN i f ON o.shape = f.shape AND o.n = f.n AND o.indrelid = $1 AND f.indrelid = $2)
      SELECT 1 AS step, n, format('ALTER INDEX %s RENAME TO %I', old, parked) AS sql FROM pairs
      UNION ALL SELECT 2, n, format('ALTER INDEX %s RENAME TO %I', fresh, name) FROM pairs
      UNION ALL SELECT 3, 0, format('ALTER SEQUENCE %s OWNED BY %s.%I', s.oid::regclass, $2::regclass, a.attname)
        FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S' AND d.deptype = 'a'
        JOIN pg_attribute a ON a.attrelid = $1 AND a.attnum = d.refobjsubid WHERE d.refobjid = $1
      ORDER BY 1, 2`,
    values: [old, fresh, kept.table],
  });
  await runAll(session, names.rows);
  await session.query(`ALTER TABLE ${quoteTable(target)} RENAME TO ${quoteName(kept.table)}`);
  await session.query(`ALTER TABLE ${quoteTable(incoming)} RENAME TO ${quoteName(target.table)}`);
}

/** The rows of `from` for those of `target`. */
interface Exchange {
  readonly target: TableName;
  readonly from: TableName;
  readonly key: readonly string[];
  readonly columns: readonly string[];
  /** Columns that can be inserted but not updated. */
  readonly fixed?: readonly string[];
}

/**
 * Exchanges the rows of the target for those of another table, in the session's transaction: readers see the old ones
 * until it commits. With a key, rows that stay keep their place, so that foreign keys hold.
 */
export async function exchangeRows(session: Session, exchange: Exchange): Promise<void> {
  const { target, from } = exchange;
  await session.query("SET CONSTRAINTS ALL DEFERRED");
  for (const sql of exchangeSql(exchange)) {
    await session.query(sql);
  }
  const { rows } = await session.query<{ there: string; due: string }>(
    `SELECT (SELECT count(*) FROM ${quoteTable(target)}) AS there, (SELECT count(*) FROM ${quoteTable(from)}) AS due`,
  );
  if (rows[0]?.there !== rows[0]?.due) {
    throw new JobError(
      "OUTPUT_REFUSED",
      `exchanging the rows of ${showTable(target)}: it holds ${rows[0]?.there} rows afterwards instead of ${rows[0]?.due}`,
      { hint: "a trigger or a rule of the table keeps rows out, or in; nothing was changed" },
    );
  }
}

/** Carries out the statements of `exchangeRows` for no row, so that the server checks the rights that they need. */
export async function exchangeNoRows(session: Session, exchange: Exchange): Promise<void> {
  for (const sql of [...exchangeSql(exchange, "false"), `SELECT FROM ${quoteTable(exchange.target)} WHERE false`]) {
    await session.query(sql);
  }
}

/** SQL that deletes rows of the target, then inserts or updates the others. @param which the rows that are concerned */
function exchangeSql({ target, from, key, columns, fixed = [] }: Exchange, which = "true"): string[] {
  const names = columns.map(quoteName);
  const keys = key.map(quoteName);
  const same = keys.map((column) => `s.${column} = t.${column}`).join(" AND ");
  const gone = keys.length === 0 ? "" : ` AND NOT EXISTS (SELECT FROM ${quoteTable(from)} s WHERE ${same})`;
  const updated = names.filter((_, index) => !fixed.includes(columns[index] ?? ""));
  const conflict = keys.length === 0 ? "" : ` ${onConflict(keys, updated)}`;
  return [
    `DELETE FROM ${quoteTable(target)} t WHERE ${which}${gone}`,
    `INSERT INTO ${quoteTable(target)} (${names.join(", ")}) OVERRIDING SYSTEM VALUE
     SELECT ${names.join(", ")} FROM ${quoteTable(from)} WHERE ${which}${conflict}`,
  ];
}

/** Copies a table with its rows. `columns`: those that can be written. */
export async function copyTable(
  session: Session,
  from: TableName,
  to: TableName,
  columns: readonly string[],
): Promise<void> {
  await makeRowTable(session, from, to);
  const names = columns.map(quoteName).join(", ");
  await session.query(
    `INSERT INTO ${quoteTable(to)} (${names}) OVERRIDING SYSTEM VALUE SELECT ${names} FROM ${quoteTable(from)}`,
  );
}

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
  hint = "write output.postgres.swap: delete_insert, which exchanges the rows and keeps the table",
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
    const hint =
      "drop them, and run the same command again: they would belong to the target, which no later run could swap";
    await refuseDependents(session, staging, oid, hint);
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
