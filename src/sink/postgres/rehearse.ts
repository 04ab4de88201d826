import type { Plan } from "../../plan/plan.js";
import { splitRunId } from "../../plan/identity.js";
import { JobError } from "../../util/errors.js";
import { answersTable, quoteTable } from "./names.js";
import { makeAnswersTable } from "./answers.js";
import { readSpans } from "./control/spans.js";
import { hasControlTables, makeControlTables } from "./control/schema.js";
import { type Session, transact } from "./connections.js";
import { copyStream } from "./copy/copy-binary.js";
import { refuseOlder } from "./run-sink.js";
import type { RunTools } from "./run-tools.js";
import { findTable, type TargetColumn } from "./table.js";
import { createRun } from "./new-run.js";

/** Thrown at the end of a rehearsal, so that its transaction is rolled back. */
class RolledBack extends Error {}

/**
 * Carries out the first steps of a run in a transaction that is rolled back: creates the control tables, stores the
 * plan, creates or checks the table, looks for newer runs. Returns the checks that were not carried out, a line each.
 * @throws JobError the errors of a run that begins
 */
export async function rehearse(tools: RunTools, plan: Plan): Promise<readonly string[]> {
  let untried: readonly string[] = [];
  try {
    await transact(tools, async (session) => {
      untried = await tryAll(session, tools, plan);
      throw new RolledBack();
    });
  } catch (error) {
    if (!(error instanceof RolledBack)) {
      throw error;
    }
  }
  return untried;
}

/**
 * Checks whether the run that is planned for some params may publish more rows. Takes no lock. Returns the checks that were
 * not carried out, a line each.
 * @throws JobError OUTPUT_NEWER
 */
export async function rehearsePlanned(tools: RunTools, { runId }: Pick<Plan, "runId">): Promise<readonly string[]> {
  const { control } = tools;
  await transact(tools, async (session) => {
    const isThere = await hasControlTables(session, control.schema);
    const stored = isThere ? await control.latestPlan(session, splitRunId(runId).base) : undefined;
    if (stored !== undefined) {
      await refuseOlder(session, tools, stored.plan, (await readSpans(session, control, stored)).length);
    }
  });
  // Its transaction must not make the attempts of the run wait.
  return ["privileges and columns of the tables, which an attempt checks before it resumes the run"];
}

/** How long another session may hold a lock on the table of the rows. */
const lockTimeout = "2s";
const lockNotAvailable = "55P03";
/** Bits of `pg_trigger.tgtype`. */
const triggerBits = { insert: 4, delete: 8, update: 16 };

type Statement = keyof typeof triggerBits;

async function tryAll(session: Session, tools: RunTools, plan: Plan): Promise<readonly string[]> {
  const { control, name, refuseNewer, target, program } = tools;
  const mode = tools.modeOf(plan);
  const own = quoteTable(mode.rowsAt(plan, { finished: false }));
  await makeControlTables(session, control.schema, program);
  await createRun(session, tools, plan);
  const columns = await mode.prepare(session, plan, { mayCreate: true });
  if (mode.kind !== "append") {
    await refuseNewer(session, plan);
  }

  const rights = mode.kind === "upsert" ? ["INSERT", "SELECT", "UPDATE"] : ["INSERT"];
  await requireRights(session, target, own, rights);
  if (mode.kind !== "replace" && (await findTable(session, name)) !== undefined) {
    await requireRights(session, target, quoteTable(name), rights);
  }
  const swaps = mode.kind === "replace" ? (["swaps"] as const) : [];
  for (const table of ["attempts", "documents", "finishes", "rejects", "spans", ...swaps] as const) {
    await requireRights(session, target, control.table(table), ["INSERT"]);
  }
  const answers = answersTable(control.schema, plan.runId);
  if (plan.request.prompt !== undefined && (await findTable(session, answers)) === undefined) {
    await makeAnswersTable(session, answers);
  }
  await requireDefaults(session, target, quoteTable(name), columns);

  // The server checks rights on columns, row-level security and temporary tables as for a run with rows.
  await session.query(`SET LOCAL lock_timeout = '${lockTimeout}'`);
  const { rehearseFinish: finish } = mode;
  const writes: readonly Statement[] = mode.kind === "upsert" ? ["insert", "update"] : ["insert"];
  const span = { plan, span: 0, chunks: copyStream(), columns };
  const untried =
    (await whyUntried(session, own, writes, () => mode.write(session, span))) ??
    (finish && (await whyUntried(session, quoteTable(name), finish.statements, () => finish.run(session, plan))));
  return [
    ...(untried === undefined ? [] : [untried]),
    "triggers, rules, constraints, partitions and policies of the table are checked when rows are written",
  ];
}

/**
 * Carries out statements on a table that write no row. Not where a trigger runs for each statement: what it does may
 * outlive the transaction. Returns why they are untried; undefined: they were carried out.
 */
async function whyUntried(
  session: Session,
  table: string,
  statements: readonly Statement[],
  act: () => Promise<unknown>,
): Promise<string | undefined> {
  const triggers = await session.query({
    text: `SELECT FROM pg_trigger WHERE tgrelid = to_regclass($1) AND NOT tgisinternal AND tgenabled IN ('O', 'A')
      AND tgtype & 1 = 0 AND tgtype & $2 <> 0 LIMIT 1`,
    values: [table, statements.reduce((bits, statement) => bits + triggerBits[statement], 0)],
  });
  if (triggers.rows.length > 0) {
    return `privileges on ${table}: it has statement-level triggers, so plan runs no statement on it; run checks them`;
  }
  try {
    await act();
    return undefined;
  } catch (error) {
    if (Object(error).code === lockNotAvailable) {
      return `privileges on ${table}: another session has locked it for more than ${lockTimeout}; run plan again`;
    }
    throw error;
  }
}

/** Checks that the role may use what fills the columns that it gives no value for: sequences and functions. */
async function requireDefaults(
  session: Session,
  target: string,
  table: string,
  columns: readonly TargetColumn[],
): Promise<void> {
  const { rows } = await session.query<{ role: string; column: string; right: string }>({
    text: `SELECT current_user AS role, a.attname AS column,
        CASE WHEN s.oid IS NULL THEN format('EXECUTE ON FUNCTION %s', f.oid::regprocedure) ELSE format('USAGE ON SEQUENCE %s', s.oid::regclass) END AS right
      FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum AND a.attgenerated = ''
      JOIN pg_depend p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
      LEFT JOIN pg_class s ON p.refclassid = 'pg_class'::regclass AND s.oid = p.refobjid
        AND CASE WHEN s.relkind = 'S' THEN NOT has_sequence_privilege(s.oid, 'USAGE, UPDATE') ELSE false END
      LEFT JOIN pg_proc f ON p.refclassid = 'pg_proc'::regclass AND f.oid = p.refobjid AND NOT has_function_privilege(f.oid, 'EXECUTE')
      WHERE d.adrelid = to_regclass($1) AND NOT a.attname = ANY ($2::text[]) AND (s.oid IS NOT NULL OR f.oid IS NOT NULL)`,
    values: [table, columns.map(({ name }) => name)],
  });
  const [missing] = rows;
  if (missing !== undefined) {
    const { role, column, right } = missing;
    throw new JobError(
      "PERMISSION",
      `checking ${target}: ${role} lacks the privilege ${right}, which fills column ${column}`,
      { hint: `GRANT ${right} TO ${role}` },
    );
  }
}

async function requireRights(
  session: Session,
  target: string,
  table: string,
  rights: readonly string[],
): Promise<void> {
  const { rows } = await session.query<{ right: string; role: string }>({
    text: `SELECT r AS right, current_user AS role FROM unnest($2::text[]) r
      WHERE NOT has_table_privilege($1, r) AND NOT has_any_column_privilege($1, r)`,
    values: [table, rights],
  });
  const [missing] = rows;
  if (missing !== undefined) {
    const lacking = rows.map(({ right }) => right).join(", ");
    throw new JobError("PERMISSION", `checking ${target}: ${missing.role} lacks the privilege ${lacking} on ${table}`, {
      hint: `GRANT ${lacking} ON ${table} TO ${missing.role}`,
    });
  }
}
