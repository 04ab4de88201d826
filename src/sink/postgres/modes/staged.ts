import { outputColumns } from "../../../binding/contract.js";
import type { Plan } from "../../../plan/plan.js";
import { JobError } from "../../../util/errors.js";
import type { Session } from "../connections.js";
import { quoteName, quoteTable, showTable, stagedRowsTable, type TableName } from "../names.js";
import { collationName, findTable, fitColumns, type TargetColumn } from "../table.js";
import { sqlOf } from "../types.js";
import { appendTable, prepareTable } from "./append.js";
import { checkStaging, dropOutdated, oidOf, runAll, stagingGone } from "./staging.js";
import type { Mode, ModeTools, RowsNeeded } from "./mode.js";
import { mergeTable, requireKey, requireUnique } from "./upsert.js";

/**
 * Mode append or upsert for a staged run: spans are written into a staging table of the run's own, as `modeAt` would
 * write them into the target. When the run is approved, one transaction inserts all rows into the target: readers see
 * none of them or all.
 */
export function stagedMode(tools: ModeTools, modeAt: (tools: ModeTools) => Mode): Mode {
  const { name, spec, control } = tools;
  const stagingOf = ({ runId }: Plan): TableName => stagedRowsTable(control.schema, runId);
  /** No row of a newer run is in the staging table. */
  const intoStaging = (plan: Plan): Mode =>
    modeAt({ ...tools, name: stagingOf(plan), refuseNewer: () => Promise.resolve() });
  const checkRows = async (session: Session, plan: Plan, doing: RowsNeeded): Promise<void> => {
    const due = intoStaging(plan).writtenRows?.(plan) ?? "0";
    if (doing === "writing" || doing === "judging") {
      await intoStaging(plan).checkRows?.(session, plan, doing); // a role that approves may not read these tables
    }
    await checkStaging(session, plan, stagingOf(plan), due, doing);
  };
  const finish = async (session: Session, plan: Plan): Promise<void> => {
    await checkRows(session, plan, "finishing");
    await publish(session, tools, plan, stagingOf(plan));
  };
  return {
    kind: spec.mode,
    rowsAt: (plan, { finished }) => (finished ? name : stagingOf(plan)),
    async prepare(session, plan, { mayCreate }) {
      await prepareTarget(session, tools, plan);
      if ((await findTable(session, stagingOf(plan))) === undefined) {
        if (!mayCreate) {
          throw stagingGone(stagingOf(plan), plan);
        }
        await makeStaging(session, tools, plan, stagingOf(plan));
      } else {
        await dropOutdated(session, name, stagingOf(plan), ["c"], spec.key);
      }
      return await intoStaging(plan).prepare(session, plan, { mayCreate });
    },
    write: (session, rows) => intoStaging(rows.plan).write(session, rows),
    checkOwnTables: async (session, plan) => await intoStaging(plan).checkOwnTables?.(session, plan),
    checkFinish: (session, plan) => refuseOtherTypes(session, tools, plan, stagingOf(plan)),
    checkRows,
    finish,
    // In a rehearsal, `finish` inserts no row, because the staging table is empty.
    rehearseFinish: { statements: spec.mode === "upsert" ? ["insert", "update"] : ["insert"], run: finish },
  };
}

/** Checks the target of a staged run, and makes it where it may: none of the run's rows was there before. */
async function prepareTarget(session: Session, tools: ModeTools, plan: Plan): Promise<TargetColumn[]> {
  const { name, spec } = tools;
  requireKey(spec.key, outputColumns(plan.contract));
  const columns = await prepareTable(session, tools, plan, true);
  if (spec.key.length > 0) {
    await requireUnique(session, name, spec.key);
  }
  return columns;
}

/** SQL for the columns $2 of table $1 with their types, and for its checks that concern no other columns. */
const definitions = `
  WITH written AS (SELECT a.*, t.typcollation FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = $1 AND a.attname = ANY ($2::text[]) AND NOT a.attisdropped)
  SELECT concat_ws(' ', quote_ident(attname), format_type(atttypid, atttypmod),
      CASE WHEN attcollation <> typcollation THEN 'COLLATE ' || ${collationName} END,
      CASE WHEN attnotnull THEN 'NOT NULL' END) AS sql, true AS is_column FROM written
  UNION ALL SELECT pg_get_constraintdef(oid), false FROM pg_constraint
    WHERE conrelid = $1 AND contype = 'c' AND conkey <@ (SELECT array_agg(attnum) FROM written)`;

/**
 * Makes a staging table with the target's columns, as far as the run writes them. The caller has locked the run.
 * Without the target's indexes it is filled faster; LIKE would need the right to read the target.
 */
async function makeStaging(session: Session, { name, spec }: ModeTools, plan: Plan, staging: TableName): Promise<void> {
  const output = outputColumns(plan.contract).map((column) => column.name);
  const { rows } = await session.query<{ sql: string; is_column: boolean }>({
    text: definitions,
    values: [await oidOf(session, name), output],
  });
  const key = spec.key.length === 0 ? [] : [`PRIMARY KEY (${spec.key.map(quoteName).join(", ")})`];
  const table = quoteTable(staging);
  const columns = rows.filter((row) => row.is_column).map(({ sql }) => sql);
  await session.query(`CREATE TABLE ${table} (${[...columns, ...key].join(", ")})`);
  await runAll(
    session,
    rows.filter((row) => !row.is_column).map(({ sql }) => ({ sql: `ALTER TABLE ${table} ADD ${sql}` })),
  );
  await session.query(
    `COMMENT ON TABLE ${table} IS 'Rows of a run that is not published yet; goes when it is published or discarded'`,
  );
}

/** Inserts all rows of a run into the target. */
async function publish(session: Session, tools: ModeTools, plan: Plan, staging: TableName): Promise<void> {
  const { name, spec, refuseNewer } = tools;
  await session.query("SET LOCAL statement_timeout = 0"); // all rows may take longer than the limit of a statement
  const columns = await prepareTarget(session, tools, plan);
  await (spec.mode === "upsert"
    ? mergeTable(session, tools, staging, columns)
    : appendTable(session, name, staging, columns));
  await refuseOtherTypes(session, tools, plan, staging);
  if (spec.mode === "upsert") {
    // The rows are locked now: a newer run that has put one of them has committed, and is seen; or it waits.
    await refuseNewer(session, plan);
  }
}

/**
 * Refuses a target whose columns have other types than when the run began: an assignment would convert the values.
 * Publishing calls it when it has written to the target, so that no other session can alter it.
 * @throws JobError OUTPUT_MISMATCH
 */
async function refuseOtherTypes(session: Session, { name }: ModeTools, plan: Plan, staging: TableName): Promise<void> {
  const output = outputColumns(plan.contract);
  const typesOf = async (table: TableName): Promise<readonly TargetColumn[]> => {
    const found = await findTable(session, table);
    return found === undefined ? [] : fitColumns(table, found, output);
  };
  const then = await typesOf(staging);
  for (const [index, { name: column, type }] of (await typesOf(name)).entries()) {
    const { notNull: _, ...now } = type;
    const { notNull: __, ...before } = then[index]?.type ?? type;
    if (JSON.stringify(now) !== JSON.stringify(before)) {
      throw new JobError(
        "OUTPUT_MISMATCH",
        `publishing to ${showTable(name)}: column ${column} was ${sqlOf(before)} when the run began, and is ${sqlOf(now)}`,
        { hint: "change it back, and run the same command again" },
      );
    }
  }
}
