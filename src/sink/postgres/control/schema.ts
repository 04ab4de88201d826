import { JobError } from "../../../util/errors.js";
import type { Session } from "../connections.js";
import { lock } from "../locks.js";
import { quoteName } from "../names.js";
import { transact, type TransactionTools } from "../transaction.js";
import { hasSchema } from "../table.js";
import { creation, layoutVersion } from "./tables.js";

/**
 * Whether there are control tables. @throws JobError OUTPUT_DAMAGED when they are of another layout, or the table
 * `version` or its rows are gone
 */
export async function hasControlTables(session: Session, schema: string): Promise<boolean> {
  // Not by to_regclass, which may answer from a cache that is older than the lock it waited for.
  const there = await session.query<{ relname: string }>({
    text: `SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = $1 AND c.relname IN ('version', 'runs', 'spans')`,
    values: [schema],
  });
  if (there.rows.length === 0) {
    return false;
  }
  const isWhole = there.rows.some(({ relname }) => relname === "version");
  const found = isWhole
    ? await session.query<{ version: number | null }>(
        `SELECT max(version) AS version FROM ${quoteName(schema)}.version`,
      )
    : undefined;
  const newest = found?.rows[0]?.version ?? undefined;
  if (newest === undefined) {
    throw new JobError("OUTPUT_DAMAGED", `checking control schema ${schema}: its table version is gone or empty`, {
      hint: "restore the control tables from a backup",
    });
  }
  if (newest !== layoutVersion) {
    throw new JobError(
      "OUTPUT_DAMAGED",
      `checking control schema ${schema}: its tables have layout ${newest}, and this program knows ${layoutVersion}`,
      { hint: "use the program that made them, or another output.postgres.control_schema" },
    );
  }
  return true;
}

/**
 * Makes the control tables where they are missing, in a transaction of its own. `last`: the error of the caller's
 * previous try.
 */
export async function ensureControlTables(
  tools: TransactionTools,
  { schema, program, last }: { readonly schema: string; readonly program: string; readonly last: unknown },
): Promise<void> {
  if (!(await transact(tools, (session) => hasControlTables(session, schema), { last }))) {
    await transact(tools, (session) => makeControlTables(session, schema, program), { last });
  }
}

/** Creates the control tables. When several attempts start at once, one of them does it. */
export async function makeControlTables(session: Session, schema: string, program: string): Promise<void> {
  // The lock is the transaction's, since a pooler may give each transaction another session.
  await lock(session, schema);
  if (!(await hasControlTables(session, schema))) {
    const making = (await hasSchema(session, schema)) ? "" : `CREATE SCHEMA ${quoteName(schema)};`;
    await session.query(making + creation(schema, program));
  }
}
