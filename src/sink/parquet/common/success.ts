import { parseJson } from "../../../plan/parse-plan.js";
import type { RunId } from "../../../plan/plan.js";
import { z } from "../../../util/zod.js";
import type { StoredPlan } from "../../port.js";

const schema = z.object({ run_id: z.string() });

/** The run that a `_SUCCESS` is of. */
export function runOfSuccess(text: string): RunId | undefined {
  return schema.safeParse(parseJson(text)).data?.run_id as RunId | undefined;
}

/** The text of a run's `_SUCCESS`. */
export function successText({ plan, planId }: StoredPlan): string {
  return `${JSON.stringify({ run_id: plan.runId, plan_id: planId })}\n`;
}
