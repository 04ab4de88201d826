import type { Plan } from "../../plan/plan.js";
import { splitRunId } from "../../plan/identity.js";
import { JobError } from "../../util/errors.js";
import { answersTable, makeAnswersTable } from "./answers.js";
import { committedSpansOf, readSpans } from "./control/spans.js";
import type { ControlTableName } from "./control/control.js";
import { hasControlTables, makeControlTables } from "./control/schema.js";
import { type Session, transact } from "./connections.js";
import { copyStream } from "./copy/copy-binary.js";
import type { Mode } from "./modes/mode.js";
import { quoteTable, type TableName } from "./names.js";
import { refuseOlder } from "./run-sink.js";
import type { RunTools } from "./run-tools.js";
import { plannedTarget } from "./target.js";
import { findTable, type TargetColumn } from "./table.js";

/** What a dry run leaves to the attempts of a planned run: its transaction must not make them wait. */
const untriedOfPlanned = "privileges and columns of the tables, which an attempt checks before it resumes the run";

/** Thrown at the end of a rehearsal, so that its transaction is rolled back. */
class RolledBack extends Error {
  readonly untried: readonly string[];

  constructor(untried: readonly string[]) {
    super("rolled back on purpose");
    this.untried = untried;
  }
}

interface Rehearsal {
  readonly plan: Plan;
  readonly program: string;
  /** Stores the plan and prepares the tables. */
  readonly createRun: (session: Session) => Promise<unknown>;
}

/**
 * Carries out the first steps of a run in a transaction that is rolled back: creates the control tables, stores the
 * plan, creates or checks the table, looks for newer runs. Returns the checks that were not carried out, a line each.
 * @throws JobError the errors of a run that begins
 */
export async function rehearse(tools: RunTools, rehearsal: Rehearsal): Promise<readonly string[]> {
  try {
    return await transact(tools, async (session) => {
      throw new RolledBack(await tryAll(session, tools, rehearsal));
    });
  } catch (error) {
    if (error instanceof RolledBack) {
      return error.untried;
    }
    throw error;
  }
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
      const { plan } = stored;
      const known = committedSpansOf(plan, await readSpans(session, control, stored));
      await refuseOlder(session, tools, { plan, known });
    }
  });
  return [untriedOfPlanned];
}

async function tryAll(
  session: Session,
  { control, modeOf, name, refuseNewer, target }: RunTools,
  { plan, program, createRun }: Rehearsal,
): Promise<readonly string[]> {
  await makeControlTables(session, control.schema, program);
  await createRun(session);
  const columns = await modeOf(plan).prepare(session, plan, { mayCreate: true });
  const { mode } = plannedTarget(plan);
  if (mode !== "append") {
    await refuseNewer(session, plan);
  }
  const rights = mode === "upsert" ? ["INSERT", "SELECT", "UPDATE"] : ["INSERT"];
  await requireRights(session, target, { table: quoteTable(modeOf(plan).rowsAt(plan, { finished: false })), rights });
  if (mode !== "replace" && (await findTable(session, name)) !== undefined) {
    await requireRights(session, target, { table: quoteTable(name), rights });
  }
  for (const table of writtenControlTables(plan)) {
    await requireRights(session, target, { table: control.table(table), rights: ["INSERT"] });
  }
  const answers = answersTable(control.schema, plan.runId);
  if (plan.request.prompt !== undefined && (await findTable(session, answers)) === undefined) {
    await makeAnswersTable(session, answers);
  }
  await requireDefaults(session, target, { table: quoteTable(name), columns });
  const untried = await tryAllOf(session, trialsOf(session, { mode: modeOf(plan), plan, name, columns }));
  return [
    ...untried,
    "triggers, rules, constraints, partitions and policies of the table are checked when rows are written",
  ];
}

interface Tried {
  readonly mode: Mode;
  readonly plan: Plan;
  readonly name: TableName;
  readonly columns: readonly TargetColumn[];
}

/** Writes a span without rows, and finishes a run without rows. */
function trialsOf(session: Session, { mode, plan, name, columns }: Tried): Trial[] {
  const { rehearseFinish } = mode;
  return [
    {
      table: quoteTable(mode.rowsAt(plan, { finished: false })),
      events: triggerBits.insert + (mode.kind === "upsert" ? triggerBits.update : 0),
      act: () => mode.write(session, { plan, span: 0, chunks: copyStream(), columns }),
    },
    ...(rehearseFinish === undefined
      ? []
      : [
          {
            table: quoteTable(name),
            events: rehearseFinish.statements.reduce((sum, kind) => sum + triggerBits[kind], 0),
            act: () => rehearseFinish.run(session, plan),
          },
        ]),
  ];
}

/** The control tables without which no run of the plan is published. */
function writtenControlTables(plan: Plan): readonly ControlTableName[] {
  return [
    "attempts",
    "documents",
    "finishes",
    "rejects",
    "spans",
    ...(plannedTarget(plan).mode === "replace" ? (["swaps"] as const) : []),
  ];
}

/** How long another session may hold a lock on the table of the rows. */
const lockTimeout = "2s";
const lockNotAvailable = "55P03";
/** Bits of `pg_trigger.tgtype`. */
const triggerBits = { insert: 4, delete: 8, update: 16 };

/** Statements on a table that write no row. */
interface Trial {
  readonly table: string;
  /** The triggers that they start: bits of `pg_trigger.tgtype`. */
  readonly events: number;
  readonly act: () => Promise<unknown>;
}

/**
 * Writes a span without rows, and finishes a run without rows: the server checks rights on columns, row-level security
 * and temporary tables as for one with rows. Not where a trigger runs for each statement: what it does may outlive the
 * transaction. Returns what is untried.
 */
async function tryAllOf(session: Session, trials: readonly Trial[]): Promise<readonly string[]> {
  await session.query(`SET LOCAL lock_timeout = '${lockTimeout}'`);
  for (const { table, events, act } of trials) {
    const triggers = await session.query({
      text: `SELECT FROM pg_trigger WHERE tgrelid = to_regclass($1) AND NOT tgisinternal AND tgenabled IN ('O', 'A')
        AND tgtype & 1 = 0 AND tgtype & $2 <> 0 LIMIT 1`,
      values: [table, events],
    });
    if (triggers.rows.length > 0) {
      return [
        `privileges on ${table}: it has statement-level triggers, so plan runs no statement on it; run checks them`,
      ];
    }
    try {
      await act();
    } catch (error) {
      if (Object(error).code === lockNotAvailable) {
        return [`privileges on ${table}: another session has locked it for more than ${lockTimeout}; run plan again`];
      }
      throw error;
    }
  }
  return [];
}

/** Checks that the role may use what fills the columns that it gives no value for: sequences and functions. */
async function requireDefaults(
  session: Session,
  target: string,
  { table, columns }: { readonly table: string; readonly columns: readonly Pick<TargetColumn, "name">[] },
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
      {
        hint: `GRANT ${right} TO ${role}`,
      },
    );
  }
}

async function requireRights(
  session: Session,
  target: string,
  { table, rights }: { readonly table: string; readonly rights: readonly string[] },
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
