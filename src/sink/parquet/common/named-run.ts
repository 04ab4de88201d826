import { splitRunId } from "../../../plan/identity.js";
import { parseJson } from "../../../plan/parse-plan.js";
import type { RunId } from "../../../plan/plan.js";
import { z } from "../../../util/zod.js";
import type { StoredPlan } from "../../port.js";
import type { Layout } from "./layout.js";

const schema = z.object({ run_id: z.string() });

/** The run that the text of a `run.json` or `_SUCCESS` names; undefined for no text, or one that names none. */
export function runIdIn(text: string | undefined): RunId | undefined {
  return text === undefined ? undefined : (schema.safeParse(parseJson(text)).data?.run_id as RunId | undefined);
}

/** The text of `run.json`, which names the first of the runs that a folder belongs to. */
export function claimText({ runId }: Pick<Layout, "runId">): string {
  return `${JSON.stringify({ run_id: splitRunId(runId).base })}\n`;
}

/** The text of a run's `_SUCCESS`. */
export function successText({ plan, planId }: StoredPlan): string {
  return `${JSON.stringify({ run_id: plan.runId, plan_id: planId })}\n`;
}
