import { outputColumns } from "../../../binding/contract.js";
import { JobError } from "../../../util/errors.js";
import type { Plan } from "../../../plan/plan.js";
import { copyIn, type Session } from "../connections.js";
import { lock } from "../locks.js";
import type { EncodedRows, Mode, ModeTools } from "./mode.js";
import { quoteName, quoteTable, showTable, type TableName } from "../names.js";
import { createTable, findTable, fitColumns, refuseChanged, type TargetColumn } from "../table.js";
import { rowsOfSpans } from "./staging.js";

/** Mode append: rows are copied straight into the table. */
export function appendMode(tools: ModeTools): Mode {
  const { name, control } = tools;
  return {
    kind: "append",
    rowsAt: () => name,
    async prepare(session, plan, { mayCreate }) {
      const columns = await prepareTable(session, tools, plan, mayCreate);
      await refuseRowSecurity(session, name);
      return columns;
    },
    write: (session, rows) => copyRows(session, name, rows),
    writtenRows: () => rowsOfSpans(control),
  };
}

/** Refuses a table whose policies apply to this role: Postgres cannot COPY into it. @throws JobError PERMISSION */
async function refuseRowSecurity(session: Session, name: TableName): Promise<void> {
  const { rows } = await session.query({
    text: `SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = $1 AND c.relname = $2 AND row_security_active(c.oid)`,
    values: [name.schema, name.table],
  });
  if (rows.length > 0) {
    throw new JobError(
      "PERMISSION",
      `checking table ${showTable(name)}: its row-level security applies to this role, and Postgres cannot COPY into such a table`,
      {
        hint: "connect as a role with BYPASSRLS, or as the owner of a table without FORCE ROW LEVEL SECURITY; or write output.postgres.mode: upsert, which inserts as the policies allow",
      },
    );
  }
}

/**
 * Copies a span's rows into a table; returns how many the server took. Checks that it is still the table that the run
 * began with.
 */
export async function copyRows(session: Session, name: TableName, { chunks, columns }: EncodedRows): Promise<number> {
  const taken = await copyIn(session, copySql(quoteTable(name), columns), chunks);
  await refuseChanged(session, name, columns);
  return taken;
}

export function copySql(table: string, columns: readonly TargetColumn[]): string {
  return `COPY ${table} (${columns.map((column) => quoteName(column.name)).join(", ")}) FROM STDIN (FORMAT binary)`;
}

/**
 * Inserts the rows of a table into the target, all of them or none.
 * @throws JobError OUTPUT_REFUSED when the target takes other rows
 */
export async function appendTable(
  session: Session,
  name: TableName,
  from: TableName,
  columns: readonly TargetColumn[],
): Promise<void> {
  const names = columns.map((column) => quoteName(column.name)).join(", ");
  const due = await session.query<{ rows: number }>(`SELECT count(*)::float8 AS rows FROM ${quoteTable(from)}`);
  const put = await session.query(
    `INSERT INTO ${quoteTable(name)} (${names}) SELECT ${names} FROM ${quoteTable(from)}`,
  );
  if (put.rowCount !== due.rows[0]?.rows) {
    throw new JobError(
      "OUTPUT_REFUSED",
      `publishing to ${showTable(name)}: the table took ${put.rowCount} of ${due.rows[0]?.rows} rows`,
      { hint: "a trigger or a rule of the table keeps rows out or takes them elsewhere; nothing was changed" },
    );
  }
}

/** Checks the table's columns, and makes the table where it may. */
export async function prepareTable(
  session: Session,
  { name, spec }: ModeTools,
  plan: Plan,
  mayCreate: boolean,
): Promise<TargetColumn[]> {
  let found = await findTable(session, name);
  if (found === undefined && mayCreate && spec.create) {
    // Several attempts may start at once. The lock is the transaction's.
    await lock(session, showTable(name));
    await createTable(session, name, plan, spec.key);
    found = await findTable(session, name);
  }
  if (found === undefined) {
    throw noSuchTable(name);
  }
  if (found.unlogged) {
    throw new JobError("OUTPUT_MISMATCH", `checking table ${showTable(name)}: it is UNLOGGED`, {
      hint: `a crash of the server would empty it, and leave the record that its rows are there; ALTER TABLE ${quoteTable(name)} SET LOGGED`,
    });
  }
  return fitColumns(name, found, outputColumns(plan.contract));
}

export function noSuchTable(name: TableName): JobError {
  return new JobError("OUTPUT_MISMATCH", `checking table ${showTable(name)}: there is no such table`, {
    hint: "make it, or let output.postgres.create: true make it",
  });
}
