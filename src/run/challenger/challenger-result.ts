import type { SpanProfile } from "../../checks/profile/profile.js";
import type { Plan } from "../../plan/plan.js";
import { type ChallengerResult, challengerResult } from "../../publish/challenger-result.js";
import type { RunVerdict } from "../../publish/run-verdict.js";
import type { RunSink } from "../../sink/port.js";
import { agreementPlanOf } from "./open-challenger.js";

/** How the challenger agrees on the rows of a profile; undefined: the plan has none. */
export function resultOf(plan: Plan, { agreement }: Pick<SpanProfile, "agreement">): ChallengerResult | undefined {
  const { challenger } = plan;
  return challenger === undefined || agreement === undefined
    ? undefined
    : challengerResult(challenger, agreementPlanOf(plan, challenger), agreement);
}

/**
 * How the challenger agrees on the rows of a run whose spans are all committed: as the verdict says, else as the profiles
 * of the spans say. undefined: the plan has none.
 */
export async function challengerOfRun(
  plan: Plan,
  run: Pick<RunSink, "profile">,
  verdict: RunVerdict | undefined,
): Promise<ChallengerResult | undefined> {
  if (plan.challenger === undefined || verdict?.challenger !== undefined) {
    return verdict?.challenger;
  }
  return resultOf(plan, await run.profile());
}
