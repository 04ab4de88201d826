import { asksForPrevious, type Judged, judge, judgeWithPrevious } from "../../checks/checks.js";
import type { Verdict } from "../../checks/check.js";
import type { Plan } from "../../plan/plan.js";
import type { JobContext } from "../../scoring/context.js";
import { messageOf } from "../../util/errors.js";

/** Judges a run. If the model is new and an output did not pass, the model of the last run tells the cause. */
export async function judgeRun(context: JobContext, plan: Plan, judged: Judged): Promise<Verdict> {
  const verdict = judge(judged);
  if (!asksForPrevious(verdict, judged.run)) {
    return verdict;
  }
  const { askPrevious } = await import("./previous-model.js");
  const previous = await askPrevious(context, plan, judged.earlier.nights.at(-1));
  return previous === undefined ? verdict : judgeWithPrevious(judged, verdict, previous);
}

/** Keeps the model of a run for the verdict on the first run with the next model. A failure does not change the run. */
export async function keepModel({ earlierModels, log }: JobContext, { model }: Plan): Promise<void> {
  await earlierModels.keep(model).catch((error: unknown) => {
    log.debug(`keeping the model for later verdicts: ${messageOf(error)}`);
  });
}
