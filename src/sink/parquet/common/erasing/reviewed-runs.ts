import { splitRunId } from "../../../../plan/identity.js";
import type { RunId } from "../../../../plan/plan.js";
import { verdictWithoutRows } from "../../../../publish/erasure.js";
import type { ReviewedPlan } from "../../../port.js";
import { controlText, readDecision, readVerdict } from "../control-files.js";
import { listFolder, type TargetState } from "../file-system.js";
import { layoutOf } from "../layout.js";
import { readPlan } from "../stored-plan.js";

/** Removes what the stored verdicts on runs of these params say of single rows. @param replace replaces a small file */
export async function stripVerdicts(
  { fs, replace }: { readonly fs: TargetState; readonly replace: (path: string, text: string) => Promise<void> },
  folder: string,
  base: RunId,
): Promise<void> {
  for (const name of (await listFolder(fs, layoutOf(folder, base).runs)) as RunId[]) {
    if (splitRunId(name).base !== base) {
      continue;
    }
    const layout = layoutOf(folder, name);
    const verdict = await readVerdict(fs, layout);
    const text = verdict === undefined ? undefined : controlText(verdictWithoutRows(verdict));
    if (verdict !== undefined && text !== undefined && text !== controlText(verdict)) {
      await replace(layout.verdict, text);
    }
  }
}

/** Reads the plan of a run, and what was decided on it. */
export async function reviewedPlan(fs: TargetState, folder: string, runId: RunId): Promise<ReviewedPlan | undefined> {
  const layout = layoutOf(folder, runId);
  const stored = await readPlan(fs, layout);
  return stored === undefined
    ? undefined
    : { ...stored, verdict: await readVerdict(fs, layout), decision: await readDecision(fs, layout) };
}
