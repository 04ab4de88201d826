import { outputColumns } from "../../../binding/contract.js";
import type { TableErasure } from "../../../publish/erasure.js";
import type { Session } from "../connections.js";
import { type Control, type PlanRow, storedPlan } from "../control/control.js";
import type { TableName } from "../names.js";
import { findTable } from "../table.js";
import { pgTypeOf, sqlOf } from "../types.js";

/** The SQL types of the key columns of a table; undefined: it lacks one, or there is no such table. */
export async function keyTypes(
  session: Session,
  table: TableName,
  { keys }: TableErasure,
): Promise<readonly string[] | undefined> {
  const found = await findTable(session, table);
  const types = keys.columns.map((name) => withoutLimit(found?.columns.find((column) => column.name === name)?.shown));
  return types.every((type) => type !== undefined) ? types : undefined;
}

/** The type without its length or digits: an explicit cast to varchar(3) or numeric(9,2) would make another key of one. */
function withoutLimit(type: string | undefined): string | undefined {
  const [, name = type, after = ""] = /^(.*?)\([\d,]+\)(.*)$/.exec(type ?? "") ?? [];
  return name === "character" && name !== type
    ? `bpchar${after}`
    : name === "bit"
      ? `bit varying${after}`
      : type && `${name}${after}`;
}

/** How many plans are read at most. Plans can be large, and the latest one nearly always has the columns. */
const plansLimit = 20;

/**
 * The SQL types of the key columns of a table that is gone, taken from the latest plan that has all of them; text if no
 * plan has.
 */
export async function plannedKeyTypes(
  session: Session,
  { table }: Control,
  target: string,
  { keys: { columns } }: TableErasure,
): Promise<readonly string[]> {
  const { rows } = await session.query<PlanRow>({
    text: `SELECT plan, plan_id FROM ${table("runs")} WHERE target = $1 ORDER BY planned_at DESC LIMIT ${plansLimit}`,
    values: [target],
  });
  for (const row of rows) {
    const stored = storedPlan(row);
    const output = stored === undefined ? [] : outputColumns(stored.plan.contract);
    const types = columns.flatMap((name) => output.filter((column) => column.name === name).slice(0, 1));
    if (types.length === columns.length) {
      return types.map(({ type }) => sqlOf(pgTypeOf(type)));
    }
  }
  return columns.map(() => "text");
}
