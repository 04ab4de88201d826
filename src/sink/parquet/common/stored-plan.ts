import { createHash } from "node:crypto";
import { JobError } from "../../../util/errors.js";
import { numberedRunId, splitRunId } from "../../../plan/identity.js";
import { parsePlan, planToText } from "../../../plan/parse-plan.js";
import type { Plan, RunId } from "../../../plan/plan.js";
import { parseTombstone } from "../../../publish/pruned-run.js";
import { refuseForeign } from "./claim.js";
import { ifThere, listFolder, type TargetState } from "./file-system.js";
import { damagedOutput, superseded } from "./damage.js";
import { isLater, type Layout, layoutOf, nextLayout } from "./layout.js";
import type { StoredPlan } from "../../port.js";

/**
 * The text of a plan as it is stored. Its last line holds the sha256 of the rest, so that a damaged plan which still
 * parses (another column bound, another row count) is not carried out.
 */
export function sealedText(plan: Plan): string {
  const text = planToText(plan);
  return text.replace(textEnd, `,\n "sha256": "${sha256(text)}"\n}\n`);
}

const textEnd = /\n\}\n$/;
const sealedEnd = /,\n "sha256": "([0-9a-f]{64})"\n\}\n$/;

/** Reads a sealed plan; undefined: the text is not the one that was sealed, or this version cannot read it. */
function unseal(sealed: string): StoredPlan | undefined {
  const pruned = parseTombstone(sealed);
  if (pruned !== undefined) {
    return { plan: pruned.plan, planId: sha256(sealed), pruned };
  }
  const [, seal] = sealedEnd.exec(sealed) ?? [];
  const text = sealed.replace(sealedEnd, "\n}\n");
  // A digest of its own: `seal` is a slice of the text and would keep all of it in memory.
  const planId = sha256(text);
  const plan = seal === planId ? parsePlan(text) : undefined;
  return plan?.target.kind === "parquet" ? { plan, planId } : undefined;
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/**
 * Reads a run's plan; undefined where there is none. If a tombstone has the run's number, returns the plan of the run
 * that was pruned.
 * @throws JobError OUTPUT_DAMAGED when it is not a plan that this version can read
 */
export async function readPlan(
  fs: TargetState,
  { plan: path, runId }: Pick<Layout, "plan" | "runId">,
): Promise<StoredPlan | undefined> {
  const text = await ifThere(fs.readText(path));
  const stored = text === undefined ? undefined : unseal(text);
  if (text !== undefined && stored === undefined) {
    throw damagedOutput(`reading ${path}: it is damaged, or of another version of infer-batch`, {
      hint: "restore it, or use that version",
      damage: { runId },
    });
  }
  return stored;
}

/**
 * Reads the plan that a run under way depends on.
 * @throws JobError OUTPUT_DAMAGED when it is gone, PLAN_CHANGED when a tombstone has its number
 */
export async function storedPlan(fs: TargetState, layout: Layout): Promise<StoredPlan> {
  const stored = await readPlan(fs, layout);
  if (stored === undefined) {
    throw new JobError("OUTPUT_DAMAGED", `checking ${layout.folder}: the run's plan is gone from it`, {
      hint: "something removed files of a run under way; run the same command again, which plans anew",
    });
  }
  if (stored.pruned !== undefined) {
    throw superseded(layout, stored.pruned.tombstone);
  }
  return stored;
}

/**
 * Makes a check that this plan is still stored at the target and that no later run was opened: parts of another plan
 * would repeat or lose rows. Plans can be large, so a plan is read again only when its file has changed.
 */
export function planCheck(fs: TargetState, layout: Layout, planId: string): () => Promise<void> {
  let right: string | undefined;
  const next = nextLayout(layout);
  return async () => {
    if ((await ifThere(fs.identityOf(next.plan))) !== undefined) {
      throw superseded(layout, next.runId);
    }
    const now = await ifThere(fs.identityOf(layout.plan));
    if (now !== undefined && now === right) {
      return;
    }
    if ((await storedPlan(fs, layout)).planId !== planId) {
      throw new JobError("OUTPUT_DAMAGED", `checking ${layout.folder}: another attempt has planned the run again`, {
        hint: "run the same command again: it continues with the plan that is stored",
      });
    }
    right = now;
  };
}

/** The latest run in a folder of those that start with `base`: the planned one with the highest number. */
export async function latestRun(fs: TargetState, folder: string, base: RunId): Promise<RunId> {
  const names = (await listFolder(fs, layoutOf(folder, base).runs)) as RunId[];
  const numbers = names.map((name) => splitRunId(name)).filter((run) => run.base === base && run.number > 1);
  for (const { number } of numbers.toSorted((one, other) => other.number - one.number)) {
    const runId = numberedRunId(base, number);
    if ((await ifThere(fs.identityOf(layoutOf(folder, runId).plan))) !== undefined) {
      return runId;
    }
  }
  return base;
}

/** The error for a plan that could not be stored: a later run supersedes it, where there is one; else `error`. */
export async function laterRunOr(fs: TargetState, layout: Layout, error: unknown): Promise<unknown> {
  const { base } = splitRunId(layout.runId);
  const latest = await latestRun(fs, layout.folder, base).catch(() => base); // `error` says more
  return isLater(latest, layout) ? superseded(layout, latest) : error;
}

/** The text of the marker in place of a lost plan. It is not a plan; attempts of the run before find it, and stop. */
export const lostPlanText = '{"format":"infer-batch-lost-plan"}\n';

/**
 * Lists the runs just before this one whose plans are gone, in order. An attempt checks only for a plan of the run
 * after its own: there must be a marker for each before this run's plan is stored.
 */
export async function lostPlans(fs: TargetState, { folder, runId }: Layout): Promise<Layout[]> {
  const { base, number } = splitRunId(runId);
  const lost: Layout[] = [];
  for (let earlier = number - 1; earlier > 0; earlier -= 1) {
    const layout = layoutOf(folder, numberedRunId(base, earlier));
    if ((await ifThere(fs.identityOf(layout.plan))) !== undefined) {
      break;
    }
    lost.unshift(layout);
  }
  return lost;
}

/**
 * Finds the plan of the latest run.
 * @throws JobError OUTPUT_FOREIGN when the folder holds files of something else, OUTPUT_DAMAGED when the latest run has
 * lost its plan
 */
export async function findPlan(fs: TargetState, folder: string, base: RunId): Promise<StoredPlan | undefined> {
  for (;;) {
    const layout = layoutOf(folder, await latestRun(fs, folder, base));
    try {
      // First: where plans are lost, this names the latest run that has parts.
      await refuseForeign(fs, layout);
      return await readPlan(fs, layout);
    } catch (error) {
      // A run that another attempt has opened since may have moved its parts into place. It is the latest run now.
      // Where that cannot be read, `error` says more.
      if ((await latestRun(fs, folder, base).catch(() => layout.runId)) === layout.runId) {
        throw error;
      }
    }
  }
}
