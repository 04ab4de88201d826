import { createHash } from "node:crypto";
import { JobError } from "../../../util/errors.js";
import { numberedRunId, splitRunId } from "../../../plan/identity.js";
import { parsePlan, planToText } from "../../../plan/parse-plan.js";
import type { Plan, RunId } from "../../../plan/plan.js";
import { refuseForeign } from "./claim.js";
import { ifThere, listFolder, type TargetState } from "./file-system.js";
import { damagedOutput, overtaken } from "./damage.js";
import { isLater, type Layout, layoutOf, nextLayout } from "./layout.js";
import type { StoredPlan } from "../../port.js";

/**
 * A plan's text as it is kept: its sha256 is in its last line, so that a plan that was damaged and still is one
 * (another column bound, another row counted) is not carried out.
 */
export function sealedText(plan: Plan): string {
  const text = planToText(plan);
  return text.replace(textEnd, `,\n "sha256": "${sha256(text)}"\n}\n`);
}

const textEnd = /\n\}\n$/;
const sealedEnd = /,\n "sha256": "([0-9a-f]{64})"\n\}\n$/;

/** "damaged" when the text is not what was sealed, "unknown" when it is and this program cannot read it. */
function unseal(sealed: string): StoredPlan | "damaged" | "unknown" {
  const [, seal] = sealedEnd.exec(sealed) ?? [];
  const text = sealed.replace(sealedEnd, "\n}\n");
  // Not `seal` itself, which would keep all of the text.
  const planId = sha256(text);
  if (seal !== planId) {
    return "damaged";
  }
  const plan = parsePlan(text);
  return plan?.target.kind === "parquet" ? { plan, planId } : "unknown";
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** @throws JobError OUTPUT_DAMAGED when it is no plan, OUTPUT_FOREIGN when another version of this program wrote it */
export async function readPlan(
  fs: TargetState,
  { plan: path, runId }: Pick<Layout, "plan" | "runId">,
): Promise<StoredPlan | undefined> {
  const text = await ifThere(fs.readText(path));
  const stored = text === undefined ? undefined : unseal(text);
  if (stored === "damaged") {
    const damage = { runId };
    throw damagedOutput(`reading ${path}: it is not a plan of this program`, { hint: "restore it", damage });
  }
  if (stored === "unknown") {
    throw new JobError("OUTPUT_FOREIGN", `reading ${path}: another version of this program wrote it`, {
      hint: "use that version, or score into another folder",
    });
  }
  return stored;
}

/** The plan that a run under way rests on. @throws JobError OUTPUT_DAMAGED when it is gone */
export async function standingPlan(fs: TargetState, layout: Layout): Promise<StoredPlan> {
  const stored = await readPlan(fs, layout);
  if (stored === undefined) {
    throw new JobError("OUTPUT_DAMAGED", `looking at ${layout.folder}: the run's plan is gone from it`, {
      hint: "something removed files of a run under way; run the same command again, which plans anew",
    });
  }
  return stored;
}

/**
 * A check that the plan at the target is still this one, and that no run came after it: parts of another plan would
 * repeat or lose rows. Plans can be large, so one that was found right is read again only when its file is another
 * one.
 */
export function planCheck(fs: TargetState, layout: Layout, planId: string): () => Promise<void> {
  let right: string | undefined;
  const next = nextLayout(layout);
  return async () => {
    if ((await ifThere(fs.identityOf(next.plan))) !== undefined) {
      throw overtaken(layout, next.runId);
    }
    const now = await ifThere(fs.identityOf(layout.plan));
    if (now !== undefined && now === right) {
      return;
    }
    if ((await standingPlan(fs, layout)).planId !== planId) {
      throw new JobError("OUTPUT_DAMAGED", `looking at ${layout.folder}: the run was planned anew meanwhile`, {
        hint: "run the same command again: it takes up the plan that stands",
      });
    }
    right = now;
  };
}

/** The latest run in a folder of those that start with `base`: the one with the highest number that was planned. */
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

/** What a failure to plan a run means: that a later run was opened meanwhile, where there is one; else `error`. */
export async function laterRunOr(fs: TargetState, layout: Layout, error: unknown): Promise<unknown> {
  const { base } = splitRunId(layout.runId);
  const latest = await latestRun(fs, layout.folder, base).catch(() => base);
  return isLater(latest, layout) ? overtaken(layout, latest) : error;
}

/** Stands in the place of a plan that is gone: not a plan, and a sign for attempts of earlier runs that theirs is over. */
export const lostPlanText = '{"format":"infer-batch-lost-plan"}\n';

/**
 * The runs just before this one whose plans are gone, in order. Attempts of an earlier run look for the plan of the run
 * after theirs alone: something must stand there before this run's plan does.
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
 * The plan of the latest run. @throws JobError OUTPUT_FOREIGN when the folder holds what is not theirs, OUTPUT_DAMAGED
 * when the latest run has lost its plan
 */
export async function findPlan(fs: TargetState, folder: string, base: RunId): Promise<StoredPlan | undefined> {
  for (;;) {
    const layout = layoutOf(folder, await latestRun(fs, folder, base));
    try {
      // First: it names the latest run whose parts are there, where the plans of that run and of earlier ones are lost.
      await refuseForeign(fs, layout);
      return await readPlan(fs, layout);
    } catch (error) {
      // A run that was opened meanwhile may have put its parts in place: it is the one to look at.
      if ((await latestRun(fs, folder, base).catch(() => layout.runId)) === layout.runId) {
        throw error;
      }
    }
  }
}
