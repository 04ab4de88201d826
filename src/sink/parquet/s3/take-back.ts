import type { RunId } from "../../../plan/plan.js";
import { spanCount } from "../../../plan/spans.js";
import { JobError } from "../../../util/errors.js";
import type { Target } from "../common/committed-parts.js";
import { readDecision } from "../common/control-files.js";
import { listFolder } from "../common/file-system.js";
import { isLater, type Layout, layoutOf, plannedLayout } from "../common/layout.js";
import { listParts } from "../common/parts.js";
import { readPlan } from "../common/stored-plan.js";

/**
 * Checks for a later run after something was created that readers do not see; where there is one, takes back what this
 * attempt created. In S3 nothing prevents an object from being created too late, as a removed folder does on a disk.
 */
export async function takeBackIfSuperseded(check: Target["check"], takeBack: () => Promise<unknown>): Promise<void> {
  await ifSuperseded(check, async (error) => {
    await takeBack();
    throw error;
  });
}

/**
 * Checks for a later run after something was published. Takes it back if the later run may have begun to replace what
 * readers see, and may have looked for it before. Otherwise the later run still finds it, and until then readers need it:
 * another attempt may have published this run, and the later run may be an erasure that copies its rows.
 */
export async function takeBackIfReplaced(target: Target, takeBack: () => Promise<unknown>): Promise<void> {
  await ifSuperseded(target.check, async (error) => {
    if (await mayBeReplaced(target)) {
      await takeBack();
      throw error;
    }
  });
}

async function ifSuperseded(check: Target["check"], act: (error: JobError) => Promise<void>): Promise<void> {
  try {
    await check();
  } catch (error) {
    if (!(error instanceof JobError) || error.exitCode !== 66) {
      throw error;
    }
    await act(error);
  }
}

async function mayBeReplaced({ fs, layout }: Pick<Target, "fs" | "layout">): Promise<boolean> {
  const names = (await listFolder(fs, layout.runs)) as RunId[];
  for (const name of names.filter((one) => isLater(one, layout))) {
    if (await mayReplace(fs, layoutOf(layout.folder, name))) {
      return true;
    }
  }
  return false;
}

/** Whether a run may have begun to replace an earlier one: with all of its spans and, if it is staged, an approval. */
async function mayReplace(fs: Target["fs"], layout: Layout): Promise<boolean> {
  let stored: Awaited<ReturnType<typeof readPlan>>;
  try {
    stored = await readPlan(fs, layout);
  } catch (error) {
    if (error instanceof JobError) {
      return true; // its plan is lost or damaged
    }
    throw error;
  }
  if (stored === undefined || stored.pruned !== undefined) {
    return stored !== undefined;
  }
  const { plan } = stored;
  if (plan.staged) {
    return (await readDecision(fs, layout))?.kind === "approved";
  }
  return (await listParts(fs, plannedLayout(layout.folder, plan))).size === spanCount(plan);
}
