import type { Plan, RunId } from "../../../plan/plan.js";
import { lostKey, lostKeyWarning, newProfileKey, parseProfileKey } from "../../sealing.js";
import type { Connections, Session } from "../connections.js";
import { isMissingTable } from "../failures.js";
import { runAll } from "../modes/staging.js";
import { shortHash } from "../modes/upsert.js";
import { quoteTable, showTable, type TableName } from "../names.js";
import type { RunTools } from "../run-tools.js";

type Tools = Pick<RunTools, "control" | "warnOnce">;

/**
 * Name of the table that holds the key of an unfinished run: what its spans' profiles say of features and slices is sealed
 * with it. The server removes the file of a table that is dropped; a row that is deleted stays in its file until VACUUM.
 */
export function profileKeyTable(schema: string, runId: RunId): TableName {
  return { schema, table: `profile_key_${shortHash(runId)}` };
}

/**
 * Makes the table of a run's key unless it is there, and reads the key. The caller has locked the run: one attempt at a
 * time does this, and none for a run that is over. Without its key, a run that may be held is not scored. One that its checks
 * cannot hold is scored, with a warning. undefined: there is no key, and nothing can be sealed.
 * @throws JobError OUTPUT_DAMAGED for a staged run whose spans are sealed with a key that is gone
 */
export async function keepProfileKey(session: Session, tools: Tools, plan: Plan): Promise<Buffer | undefined> {
  const name = profileKeyTable(tools.control.schema, plan.runId);
  const found = await findKey(session, name);
  if (!found.isThere && (await hasSealedSpans(session, tools, plan))) {
    return reportLostKey(tools, plan, name);
  }
  if (!plan.staged && !(found.isThere ? found.mayRead : found.mayCreate)) {
    const { schema } = tools.control;
    const what = found.isThere ? `SELECT on ${showTable(name)}` : `CREATE on schema ${schema}`;
    tools.warnOnce(
      `preparing run ${plan.runId}: ${found.role} lacks the privilege ${what}, so the run is published without the profiles of its features and slices`,
    );
    return undefined;
  }
  if (!found.isThere) {
    await createKey(session, tools, name);
  }
  return (await readKey(session, name)) ?? reportLostKey(tools, plan, name);
}

interface FoundKey {
  readonly isThere: boolean;
  readonly mayRead: boolean;
  /** Whether the role may make the table. */
  readonly mayCreate: boolean;
  /** The role of the session. */
  readonly role: string;
}

async function findKey(session: Session, { schema, table }: TableName): Promise<FoundKey> {
  const { rows } = await session.query<FoundKey>({
    text: `SELECT c.oid IS NOT NULL AS "isThere", coalesce(has_table_privilege(c.oid, 'SELECT'), false) AS "mayRead",
        has_schema_privilege(n.oid, 'CREATE') AS "mayCreate", current_user AS role
      FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = $2 WHERE n.nspname = $1`,
    values: [schema, table],
  });
  return rows[0] ?? { isThere: false, mayRead: false, mayCreate: true, role: "" };
}

/** Whether a committed span has a sealed part, which `withSealed` adds as the last member. */
async function hasSealedSpans(session: Session, { control }: Tools, { runId }: Plan): Promise<boolean> {
  const { rows } = await session.query({
    text: `SELECT FROM ${control.table("spans")} WHERE run_id = $1 AND profile ~ '"sealed":"[^"]*"}$' LIMIT 1`,
    values: [runId],
  });
  return rows.length > 0;
}

/** Warns of a run that its checks cannot hold. @throws JobError OUTPUT_DAMAGED for a staged run */
function reportLostKey(tools: Tools, plan: Plan, name: TableName): undefined {
  if (plan.staged) {
    throw lostKey(plan.runId, showTable(name));
  }
  tools.warnOnce(lostKeyWarning(plan.runId, goneText(name)));
}

/** What is found of a key that is gone, for messages. */
export function goneText(name: TableName): string {
  return `the key of its features, ${showTable(name)}, is gone or is another one`;
}

async function createKey(session: Session, { control }: Tools, name: TableName): Promise<void> {
  const table = quoteTable(name);
  await session.query(`CREATE TABLE ${table} (key text NOT NULL);
    COMMENT ON TABLE ${table} IS 'The key of an unfinished run; dropped when the run is published or discarded';
    COMMENT ON COLUMN ${table}.key IS 'opens what the profiles of its spans say of features and slices'`);
  const { rows } = await session.query<{ sql: string }>({ text: granting, values: [table, control.table("spans")] });
  await runAll(session, rows);
  await session.query({ text: `INSERT INTO ${table} (key) VALUES ($1)`, values: [newProfileKey()] });
}

/**
 * SQL for statements that let those roles read the table of a key that may commit spans, and no others: default privileges
 * may have given it to more. $1: the key's table, $2: that of the spans, as quoted names.
 */
const granting = `
  WITH names AS (SELECT $1::text::regclass AS key, $2::text::regclass AS spans),
  keys AS (SELECT c.* FROM pg_class c, names WHERE c.oid = names.key),
  scorers AS (SELECT DISTINCT a.grantee FROM pg_class c, names, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
    WHERE c.oid = names.spans AND a.privilege_type = 'INSERT'),
  given AS (SELECT DISTINCT a.grantee FROM keys, aclexplode(keys.relacl) a)
  SELECT format(s.sql, $1, CASE s.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(s.grantee)) END) AS sql
    FROM (SELECT 1 AS n, 'REVOKE ALL ON %s FROM %s' AS sql, grantee FROM given
      UNION ALL SELECT 2, 'GRANT SELECT ON %s TO %s', grantee FROM scorers) s, keys
    WHERE s.grantee <> keys.relowner ORDER BY s.n`;

/** Reads the key of a run; undefined where it is gone. */
export async function readProfileKey(connections: Connections, name: TableName): Promise<Buffer | undefined> {
  try {
    return await connections.use((session) => readKey(session, name));
  } catch (error) {
    if (isMissingTable(error)) {
      return undefined;
    }
    throw error;
  }
}

async function readKey(session: Session, name: TableName): Promise<Buffer | undefined> {
  const { rows } = await session.query<{ key: string }>(`SELECT key FROM ${quoteTable(name)}`);
  return rows[0] === undefined ? undefined : parseProfileKey(rows[0].key);
}
