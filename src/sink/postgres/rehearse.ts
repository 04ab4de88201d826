import type { Plan } from "../../plan/plan.js";
import { JobError } from "../../util/errors.js";
import { controlLayout, makeControlTables } from "./control/schema.js";
import { layoutVersion } from "./control/tables.js";
import type { Session } from "./connections.js";
import { quoteTable } from "./names.js";
import type { RunTools } from "./run-tools.js";
import { plannedTarget } from "./target.js";
import { findTable } from "./table.js";
import { transact } from "./transaction.js";

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

async function tryAll(
  session: Session,
  { control, modeOf, name, refuseNewer, target }: RunTools,
  { plan, program, createRun }: Rehearsal,
): Promise<readonly string[]> {
  const layout = await controlLayout(session, control.schema);
  if (layout > 0 && layout < layoutVersion) {
    return [`the control tables in ${control.schema} have layout ${layout}, and are migrated when a run starts`];
  }
  await makeControlTables(session, control.schema, program);
  await createRun(session);
  const { mode } = plannedTarget(plan);
  if (mode !== "append") {
    await refuseNewer(session, plan);
  }
  const rights = mode === "upsert" ? ["INSERT", "SELECT", "UPDATE"] : ["INSERT"];
  await requireRights(session, target, { table: quoteTable(modeOf(plan).rowsAt(plan, { finished: false })), rights });
  if (mode !== "replace" && (await findTable(session, name)) !== undefined) {
    await requireRights(session, target, { table: quoteTable(name), rights });
  }
  for (const table of ["attempts", "errors", "finishes", "rejects", "spans"] as const) {
    await requireRights(session, target, { table: control.table(table), rights: ["INSERT"] });
  }
  return ["triggers, rules and constraints of the table are checked when rows are written"];
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
    throw new JobError("PERMISSION", `checking ${target}: ${missing.role} has no right to ${lacking} on ${table}`, {
      hint: `GRANT ${lacking} ON ${table} TO ${missing.role}`,
    });
  }
}
