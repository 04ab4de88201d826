import { sampleEvery } from "../../checks/profile/features.js";
import type { Decoder } from "../../formats/port.js";
import type { Plan } from "../../plan/plan.js";
import type { JobContext } from "../../scoring/context.js";
import { fewestKept } from "./kept-rows.js";

/**
 * Adds to the plan of a run with checks how many rows are sampled for the profiles of features, if `input.where` leaves
 * out so many that a sample of the planned rows would be too small. The sample must be the same for all attempts and
 * workers, so its rate is planned. If the kept rows cannot be counted, the plan stays as it is:
 * a rate that is far too fine would cost all workers CPU time, without a message.
 */
export async function planSample(
  context: JobContext,
  { plan, decoder }: { readonly plan: Plan; readonly decoder: Decoder },
): Promise<Plan> {
  const { checks, request, input } = plan;
  const ofPlanned = sampleEvery(input.rows);
  if (checks === null || request.where === null || ofPlanned === 1) {
    return plan;
  }
  const kept = await fewestKept(context, plan, decoder);
  const every = kept === undefined ? ofPlanned : sampleEvery(kept);
  return every === ofPlanned ? plan : { ...plan, checks: { ...checks, sampleEvery: every } };
}
