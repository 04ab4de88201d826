import { DatabaseError } from "pg";
import type { RunId } from "../../../plan/plan.js";
import { newProfileKey, parseProfileKey } from "../../sealing.js";
import type { Connections, Session } from "../connections.js";
import { damagedRun } from "../damage.js";
import { oidOf } from "../modes/staging.js";
import { shortHash } from "../modes/upsert.js";
import { quoteTable, showTable, type TableName } from "../names.js";

const undefinedTable = "42P01";

/**
 * Name of the table that holds the key of an unfinished run: what its spans' profiles say of features and slices is sealed
 * with it. The server removes the file of a table that is dropped; a row that is deleted stays in its file until VACUUM.
 */
export function profileKeyTable(schema: string, runId: RunId): TableName {
  return { schema, table: `profile_key_${shortHash(runId)}` };
}

/**
 * Makes the table of a run's key unless it is there, and reads the key. The caller has locked the run: one attempt at a
 * time does this, and none for a run that is over.
 * @throws JobError OUTPUT_DAMAGED
 */
export async function keepProfileKey(session: Session, schema: string, runId: RunId): Promise<Buffer> {
  const name = profileKeyTable(schema, runId);
  if ((await oidOf(session, name)) === undefined) {
    const table = quoteTable(name);
    await session.query(`CREATE TABLE ${table} (key text NOT NULL);
      COMMENT ON TABLE ${table} IS 'The key of an unfinished run; dropped when the run is published or discarded';
      COMMENT ON COLUMN ${table}.key IS 'opens what the profiles of its spans say of features and slices'`);
    await session.query({ text: `INSERT INTO ${table} (key) VALUES ($1)`, values: [newProfileKey()] });
  }
  const key = await readKey(session, name);
  if (key === undefined) {
    throw damagedRun(`reading ${showTable(name)}: it has no key`, { hint: "restore it from a backup", runId });
  }
  return key;
}

/** Reads the key of a run; undefined where it is gone. */
export async function readProfileKey(connections: Connections, name: TableName): Promise<Buffer | undefined> {
  try {
    return await connections.use(async (session) =>
      (await oidOf(session, name)) === undefined ? undefined : await readKey(session, name),
    );
  } catch (error) {
    if (error instanceof DatabaseError && error.code === undefinedTable) {
      return undefined; // another attempt has dropped it between the two statements
    }
    throw error;
  }
}

async function readKey(session: Session, name: TableName): Promise<Buffer | undefined> {
  const { rows } = await session.query<{ key: string }>(`SELECT key FROM ${quoteTable(name)}`);
  return rows[0] === undefined ? undefined : parseProfileKey(rows[0].key);
}
