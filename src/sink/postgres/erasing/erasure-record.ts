import type { ErasedTable, TableErasure } from "../../../publish/erasure.js";
import type { Session } from "../connections.js";
import type { Control } from "../control/control.js";
import { lock } from "../locks.js";
import { quoteName } from "../names.js";

/**
 * Records that rows were erased, when and how many, and never of whom. The table is made by the first erasure: a job
 * without any needs none.
 */
export async function recordErasure(
  session: Session,
  { schema }: Control,
  {
    target,
    request,
    erased,
  }: { readonly target: string; readonly request: TableErasure; readonly erased: readonly ErasedTable[] },
): Promise<void> {
  const table = `${quoteName(schema)}.erasures`;
  const isMissing = async (): Promise<boolean> => {
    const { rows } = await session.query({
      text: "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'erasures'",
      values: [schema],
    });
    return rows.length === 0;
  };
  if (await isMissing()) {
    await lock(session, schema); // an erasure of another table may be making it
  }
  if (await isMissing()) {
    await session.query(`CREATE TABLE ${table} (
      n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, target text NOT NULL, by text NOT NULL,
      at timestamptz NOT NULL DEFAULT clock_timestamp(), key text[] NOT NULL, keys bigint NOT NULL,
      keys_not_found bigint NOT NULL, rows bigint NOT NULL, rejects bigint NOT NULL);
      COMMENT ON TABLE ${table} IS 'A row for each time that rows of persons were erased: when and how many'`);
  }
  const { keys, found, by } = request;
  await session.query({
    text: `INSERT INTO ${table} (target, by, key, keys, keys_not_found, rows, rejects) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
    values: [
      target,
      by,
      keys.columns,
      keys.keys.length,
      keys.keys.length - found.size,
      erased.reduce((sum, one) => sum + one.rows, 0),
      erased.reduce((sum, one) => sum + one.rejects, 0),
    ],
  });
}
