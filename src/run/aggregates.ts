import { scoredColumns } from "../binding/contract.js";
import type { Aggregates } from "../checks/profile/profile.js";
import type { Plan } from "../plan/plan.js";
import { atKey, type JobContext } from "../scoring/context.js";

/**
 * Opens the conditions that a plan pins; undefined: it has none.
 * @throws JobError SPEC_INVALID for a condition that does not fit the output
 */
export async function aggregatesOf(
  context: Pick<JobContext, "where" | "openAggregates">,
  { contract, checks }: Pick<Plan, "contract"> & { readonly checks: Pick<NonNullable<Plan["checks"]>, "sql"> | null },
): Promise<Aggregates | undefined> {
  const sql = checks?.sql;
  return sql === undefined
    ? undefined
    : await atKey(context, ["checks", "sql"], () => context.openAggregates(sql, scoredColumns(contract)));
}
