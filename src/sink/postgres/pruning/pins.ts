import type { Plan, RunId } from "../../../plan/plan.js";
import { pinsOf } from "../../../jobs/prune-choice.js";
import { JobError } from "../../../util/errors.js";
import type { Session } from "../connections.js";
import { type Control, type PlanRow, storedPlan } from "../control/control.js";
import { runConditions } from "../control/run-conditions.js";
import { lock } from "../locks.js";

/**
 * The fence around pinned profiles. A transaction that stores a plan takes it `shared` and checks that the profiles
 * which the plan pins are there; one that removes profiles takes it alone and checks that no open run pins them.
 */
export async function lockPins(
  session: Session,
  target: string,
  { shared }: { readonly shared: boolean },
): Promise<void> {
  await lock(session, `pins ${target}`, { shared });
}

/** Refuses a new plan whose pinned profiles were pruned since they were found. @throws JobError DATABASE */
export async function refusePrunedPins(
  session: Session,
  { table }: Control,
  plan: Plan,
  target: string,
): Promise<void> {
  const pins = pinsOf(plan);
  if (pins.length === 0) {
    return;
  }
  await lockPins(session, target, { shared: true });
  const { rows } = await session.query<{ run_id: string }>({
    text: `SELECT run_id FROM ${table("finishes")} WHERE run_id = ANY ($1) AND profile IS NULL LIMIT 1`,
    values: [pins],
  });
  if (rows[0] !== undefined) {
    throw new JobError(
      "DATABASE",
      `planning run ${plan.runId}: run ${rows[0].run_id}, which it is compared with, was pruned meanwhile`,
      {
        hint: "run the same command again: it plans the run without that one",
      },
    );
  }
}

/** Finds an open run for a target whose plan pins the profile of one of these runs. */
export async function pinningRun(
  session: Session,
  { table }: Control,
  { target, runs }: { readonly target: string; readonly runs: readonly RunId[] },
): Promise<RunId | undefined> {
  const { isUnfinished, isDecided } = runConditions(table);
  const { rows } = await session.query<PlanRow>({
    text: `SELECT plan, plan_id FROM ${table("runs")} r WHERE target = $1 AND ${isUnfinished} AND NOT ${isDecided("discarded")}
      AND NOT EXISTS (SELECT 1 FROM ${table("runs")} l WHERE l.base = r.base AND l.number > r.number)`,
    values: [target],
  });
  const plans = rows.flatMap((row) => storedPlan(row)?.plan ?? []);
  const all: ReadonlySet<string> = new Set(runs);
  return plans.find((plan) => pinsOf(plan).some((run) => all.has(run)))?.runId;
}
