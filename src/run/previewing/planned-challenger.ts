import type { Plan } from "../../plan/plan.js";
import type { ChallengerPreview } from "../../report/plan-text.js";
import type { ScoringContext } from "../../scoring/context.js";
import { keptPlaceOf } from "../challenger/keep-predictions.js";
import { agreementPlanOf } from "../challenger/open-challenger.js";

/** Says what a run does with its challenger; undefined: the plan has none. */
export function plannedChallenger({ spec }: Pick<ScoringContext, "spec">, plan: Plan): ChallengerPreview | undefined {
  const { challenger } = plan;
  if (challenger === undefined) {
    return undefined;
  }
  const { compared, apart, tolerance } = agreementPlanOf(plan, challenger);
  return { model: challenger, compared, apart, tolerance, kept: keptPlaceOf(spec) };
}
