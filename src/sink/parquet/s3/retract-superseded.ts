import type { RunId } from "../../../plan/plan.js";
import { spanCount } from "../../../plan/spans.js";
import { JobError } from "../../../util/errors.js";
import type { Target } from "../common/committed-parts.js";
import { listFolder } from "../common/file-system.js";
import { isLater, type Layout, layoutOf, runOfPart } from "../common/layout.js";
import { readPlan } from "../common/stored-plan.js";

/**
 * Checks for a later run after something was created that readers do not see; where there is one, takes back what this
 * attempt created. In S3 nothing prevents an object from being created too late, as a removed folder does on a disk.
 */
export async function retractIfSuperseded(check: Target["check"], retract: () => Promise<unknown>): Promise<void> {
  await ifSuperseded(check, async (error) => {
    await retract();
    throw error;
  });
}

/**
 * Checks for a later run after something was published. Takes it back if the later run may have begun to replace what
 * readers see, and may have looked for it before. Otherwise the later run still finds it, and until then readers need it:
 * another attempt may have published this run, and the later run may be an erasure that copies its rows.
 * @throws JobError PLAN_CHANGED if it was taken back
 */
export async function retractIfReplaced(target: Target, retract: () => Promise<unknown>): Promise<void> {
  await ifSuperseded(target.check, async (error) => {
    if (await mayBeReplaced(target)) {
      await retract();
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

/**
 * Whether a later run may have begun its swap. It copies its parts into the folder, looks for `_SUCCESS` again, and only
 * then looks for parts of earlier runs: so none of its parts is there if it still finds what this attempt has published.
 * Of a run without rows there is no part to see.
 */
async function mayBeReplaced({ fs, layout }: Pick<Target, "fs" | "layout">): Promise<boolean> {
  const isPartOfLater = (name: string): boolean => {
    const run = runOfPart(name);
    return run !== undefined && isLater(run, layout);
  };
  if ((await listFolder(fs, layout.folder)).some(isPartOfLater)) {
    return true;
  }
  const names = (await listFolder(fs, layout.runs)) as RunId[];
  for (const name of names.filter((one) => isLater(one, layout))) {
    if (await mayHaveNoParts(fs, layoutOf(layout.folder, name))) {
      return true;
    }
  }
  return false;
}

async function mayHaveNoParts(fs: Target["fs"], layout: Layout): Promise<boolean> {
  try {
    const stored = await readPlan(fs, layout);
    return stored !== undefined && stored.pruned === undefined && spanCount(stored.plan) === 0;
  } catch (error) {
    if (error instanceof JobError && error.code === "OUTPUT_DAMAGED") {
      return true; // its plan is lost
    }
    throw error;
  }
}
