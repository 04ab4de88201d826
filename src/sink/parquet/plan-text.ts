import { parsePlan, planToText } from "../../plan/parse-plan.js";
import type { Plan } from "../../plan/plan.js";
import { parseTombstone } from "../../publish/pruned-run.js";
import type { StoredPlan } from "../port.js";
import { sha256Of } from "../../util/sha256.js";

/**
 * The text of a plan as it is stored. Its last line holds the sha256 of the rest, so that a damaged plan which still
 * parses (another column bound, another row count) is not carried out.
 */
export function sealedText(plan: Plan): string {
  const text = planToText(plan);
  return text.replace(textEnd, `,\n "sha256": "${sha256Of(text)}"\n}\n`);
}

const textEnd = /\n\}\n$/;
const sealedEnd = /,\n "sha256": "([0-9a-f]{64})"\n\}\n$/;

/** Reads a sealed plan; undefined: the text is not the one that was sealed, or this version cannot read it. */
export function unseal(sealed: string): StoredPlan | undefined {
  const pruned = parseTombstone(sealed);
  if (pruned !== undefined) {
    return { plan: pruned.plan, planId: sha256Of(sealed), pruned };
  }
  const [, seal] = sealedEnd.exec(sealed) ?? [];
  const text = sealed.replace(sealedEnd, "\n}\n");
  // A digest of its own: `seal` is a slice of the text and would keep all of it in memory.
  const planId = sha256Of(text);
  const plan = seal === planId ? parsePlan(text) : undefined;
  return plan?.target.kind === "parquet" ? { plan, planId } : undefined;
}

/** The text of the marker in place of a lost plan. It is not a plan; attempts of the run before find it, and stop. */
export const lostPlanText = '{"format":"infer-batch-lost-plan"}\n';
