import { JobError } from "../../../util/errors.js";
import type { Session } from "../connections.js";
import { lock } from "../locks.js";
import { copyAccess } from "../modes/staging.js";
import { quoteName } from "../names.js";
import { transact, type TransactionTools } from "../transaction.js";
import { hasSchema } from "../table.js";
import { addedTables, creation, layoutVersion, migratedRelations, migration, migrationScript } from "./tables.js";

/**
 * Reads which layout the control tables have: 0 where there are none. A layout before this program's can be read, and
 * is migrated before anything is written. @throws JobError OUTPUT_FOREIGN when a newer program made them;
 * OUTPUT_DAMAGED when the table `version` or its rows are gone
 */
export async function controlLayout(session: Session, schema: string): Promise<number> {
  // Not by to_regclass, which may answer from a cache that is older than the lock it waited for.
  const there = await session.query<{ relname: string }>({
    text: `SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = $1 AND c.relname IN ('version', 'runs', 'spans')`,
    values: [schema],
  });
  if (there.rows.length === 0) {
    return 0;
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
  if (newest < 1 || newest > layoutVersion) {
    throw new JobError(
      "OUTPUT_FOREIGN",
      `checking control schema ${schema}: its tables have layout ${newest}, this program knows ${layoutVersion}`,
      { hint: "use the newer program, or another output.postgres.control_schema" },
    );
  }
  return newest;
}

/** Limit of a migration, which reads each stored plan once. */
const migrationSeconds = 3600;

/**
 * Makes the control tables where they are missing, and migrates those of an earlier layout, in a transaction of its
 * own. `last`: the error of the caller's previous try.
 * @throws JobError PERMISSION with the SQL to run, where this role may not migrate
 */
export async function ensureControlTables(
  tools: TransactionTools,
  { schema, program, last }: { readonly schema: string; readonly program: string; readonly last: unknown },
): Promise<void> {
  const layout = await transact(tools, (session) => controlLayout(session, schema), { last });
  if (layout !== layoutVersion) {
    const silence = layout === 0 ? {} : { silentSeconds: migrationSeconds };
    await transact(tools, (session) => makeControlTables(session, schema, program), { last, ...silence });
  }
}

/** Creates or migrates the control tables. When several attempts start at once, one of them does it. */
export async function makeControlTables(session: Session, schema: string, program: string): Promise<void> {
  // The lock is the transaction's, since a pooler may give each transaction another session.
  await lock(session, schema);
  const layout = await controlLayout(session, schema);
  if (layout === 0) {
    const making = (await hasSchema(session, schema)) ? "" : `CREATE SCHEMA ${quoteName(schema)};`;
    await session.query(making + creation(schema, program));
  } else if (layout < layoutVersion) {
    await migrate(session, schema, program);
  }
}

/**
 * Migrates layout 1. A running attempt of an older program continues: the columns that its statements do not
 * name have defaults, and its runs are not staged. It waits, or is waited for, like one that holds any other lock.
 */
async function migrate(session: Session, schema: string, program: string): Promise<void> {
  await requireMigrator(session, schema, program);
  await session.query("SET LOCAL statement_timeout = 0");
  await session.query(migration(schema, program));
  for (const table of addedTables) {
    await copyAccess(session, { schema, table: "finishes" }, { schema, table });
  }
}

/** Checks that this role may migrate the control tables. @throws JobError PERMISSION with the SQL to run */
export async function requireMigrator(session: Session, schema: string, program: string): Promise<void> {
  const { rows } = await session.query<{ missing: string }>({
    text: `SELECT format('role %I does not own table %I.%I', current_user, $1::text, c.relname) AS missing
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $1 AND c.relname = ANY ($2::text[]) AND NOT pg_has_role(c.relowner, 'USAGE')
      UNION ALL SELECT format('role %I may not create tables in schema %I', current_user, $1::text)
        WHERE NOT has_schema_privilege($1, 'CREATE') ORDER BY 1 LIMIT 1`,
    values: [schema, migratedRelations],
  });
  if (rows[0] !== undefined) {
    throw new JobError(
      "PERMISSION",
      `migrating control schema ${schema} to layout ${layoutVersion}: ${rows[0].missing}\n\n${migrationScript(schema, program)}\n`,
      {
        hint: "run this SQL as the owner of these tables, such as with psql, and repeat the grants of docs/postgres.md; or run the job once as the owner",
      },
    );
  }
}
