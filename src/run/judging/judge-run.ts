import type { Judged } from "../../checks/verdicts/judge.js";
import { asksForPrevious } from "../../checks/verdicts/model-cause.js";
import type { CheckOptions } from "../../checks/verdicts/run-profile.js";
import type { Verdict } from "../../checks/verdicts/verdict.js";
import type { Plan } from "../../plan/plan.js";
import type { JobContext } from "../../scoring/context.js";
import { messageOf } from "../../util/errors.js";

interface JudgedRun {
  readonly judged: Judged;
  readonly options: CheckOptions;
}

/** Judges a run. If the model is new and an output did not pass, the model of the last run tells the cause. */
export async function judgeRun(context: JobContext, plan: Plan, { judged, options }: JudgedRun): Promise<Verdict> {
  // Runs without checks do not need these modules.
  const { judge } = await import("../../checks/verdicts/judge.js");
  const verdict = judge(judged, options);
  if (!asksForPrevious(verdict)) {
    return verdict;
  }
  const { askPrevious } = await import("./previous-model.js");
  const previous = await askPrevious(context, plan, judged.baseline.at(-1));
  return previous === undefined ? verdict : judge({ ...judged, previous }, options);
}

/** Keeps the model of a run for the verdict on the first run with the next model. A failure does not change the run. */
export async function keepModel({ earlierModels, log }: JobContext, { model }: Plan): Promise<void> {
  await earlierModels.keep(model).catch((error: unknown) => {
    log.debug(`keeping the model for later verdicts: ${messageOf(error)}`);
  });
}
