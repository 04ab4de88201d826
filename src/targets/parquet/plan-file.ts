import { basename } from "node:path";
import { numberedRunId, splitRunId } from "../../run/plan/identity.js";
import { parseJson, parsePlan, planToText } from "../../run/plan/parse-plan.js";
import type { Plan, RunId } from "../../run/plan/plan.js";
import { type Entry, type Fence, ifReadable, namesIn, type ReadableStore, type Store } from "../../stores/store.js";
import { JobError } from "../../base/errors.js";
import { z } from "../../base/zod.js";
import type { StoredPlan } from "../target.js";
import { isEarlier, isLater, isSameJob, type Layout, layoutOf, nextLayout, runOfPart } from "./layout.js";
import { parseTombstone } from "../../run/lifecycle/pruned-run.js";
import { sha256Of } from "../../base/sha256.js";

/**
 * Reads a run's plan; undefined where there is none. If a tombstone has the run's number, returns the plan of the run
 * that was pruned.
 * @throws JobError OUTPUT_DAMAGED when it is not a plan that this version can read
 */
export async function readPlan(
  store: ReadableStore,
  { plan: path, runId }: Pick<Layout, "plan" | "runId">,
): Promise<StoredPlan | undefined> {
  const text = await store.readText(path);
  const stored = text === undefined ? undefined : unseal(text);
  if (text !== undefined && stored === undefined) {
    throw damagedOutput(
      runId,
      `reading ${path}: it is damaged, or of another version of infer-batch`,
      "restore it, or use that version",
    );
  }
  return stored;
}

/**
 * Reads the plan that a run under way depends on.
 * @throws JobError OUTPUT_DAMAGED when it is gone, PLAN_CHANGED when a tombstone has its number
 */
export async function storedPlan(store: ReadableStore, layout: Layout): Promise<StoredPlan> {
  const stored = await readPlan(store, layout);
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
export function planCheck(store: ReadableStore, layout: Layout, planId: string): () => Promise<void> {
  let right: string | undefined;
  const next = nextLayout(layout);
  return async () => {
    if ((await store.stat(next.plan)) !== undefined) {
      throw superseded(layout, next.runId);
    }
    const now = (await store.stat(layout.plan))?.version;
    if (now !== undefined && now === right) {
      return;
    }
    if ((await storedPlan(store, layout)).planId !== planId) {
      throw new JobError("OUTPUT_DAMAGED", `checking ${layout.folder}: another attempt has planned the run again`, {
        hint: "run the same command again: it continues with the plan that is stored",
      });
    }
    right = now;
  };
}

/** The ids of the runs in a folder, and the names of what else is there. */
export async function runIdsIn(store: ReadableStore, { runs }: Pick<Layout, "runs">): Promise<RunId[]> {
  return (await namesIn(store, runs)) as RunId[];
}

/** The latest run in a folder of those that start with `base`: the planned one with the highest number. */
export async function latestRunId(store: ReadableStore, folder: string, base: RunId): Promise<RunId> {
  const names = await runIdsIn(store, layoutOf(folder, base));
  const numbers = names.map((name) => splitRunId(name)).filter((run) => run.base === base && run.number > 1);
  for (const { number } of numbers.toSorted((one, other) => other.number - one.number)) {
    const runId = numberedRunId(base, number);
    if ((await store.stat(layoutOf(folder, runId).plan)) !== undefined) {
      return runId;
    }
  }
  return base;
}

/**
 * Stores a plan unless another attempt has stored one, and returns the one that is stored. First the folder is claimed for
 * this run and those before and after it: the first to claim it owns it, so that two jobs that start at once cannot both
 * write there.
 * @throws JobError OUTPUT_FOREIGN; PLAN_CHANGED when a later run came first
 */
export async function createPlan(store: Store, layout: Layout, plan: Plan): Promise<StoredPlan> {
  const fence = unfenced(layout);
  try {
    await store.create(layout.claim, claimText(layout), fence);
    await refuseForeign(store, layout);
    for (const lost of await lostPlans(store, layout)) {
      await store.create(lost.plan, lostPlanText, fence);
    }
    await store.create(layout.plan, sealedText(plan), fence);
    if (runIdIn(await store.readText(layout.success)) === plan.runId) {
      await store.remove(layout.temporary); // another attempt has finished the run already
    }
    return await storedPlan(store, layout);
  } catch (error) {
    throw await laterRunOr(store, layout, error);
  }
}

interface Fenced {
  readonly layout: Layout;
  readonly check: Fence["check"];
}

/** What was created too late stays. */
export const never = (): Promise<boolean> => Promise.resolve(false);

/** The fence of what readers do not see, and must not stay when it came too late. */
export function hidden({ layout, check }: Fenced): Fence {
  return { scope: layout.temporary, check, takesBack: () => Promise.resolve(true) };
}

/** The fence of what is written once about a run, such as the decision: whoever finds it may depend on it. */
export function lasting({ layout, check }: Fenced): Fence {
  return { scope: layout.temporary, check, takesBack: never };
}

/** The fence of a run that is not planned yet: nothing can supersede it. */
export function unfenced({ temporary }: Layout): Fence {
  return { scope: temporary, check: () => Promise.resolve(), takesBack: never };
}

/** For a plan that could not be stored, or is the marker of a lost one; `error` where there is no later run. */
async function laterRunOr(store: ReadableStore, layout: Layout, error: unknown): Promise<unknown> {
  const { base } = splitRunId(layout.runId);
  const latest = await latestRunId(store, layout.folder, base).catch(() => base); // `error` says more
  return isLater(latest, layout) ? superseded(layout, latest) : error;
}

/**
 * Attempts check only for a plan of the run after their own: each lost plan needs a marker before this one is stored.
 */
async function lostPlans(store: ReadableStore, { folder, runId }: Layout): Promise<Layout[]> {
  const { base, number } = splitRunId(runId);
  const lost: Layout[] = [];
  for (let earlier = number - 1; earlier > 0; earlier -= 1) {
    const layout = layoutOf(folder, numberedRunId(base, earlier));
    if ((await store.stat(layout.plan)) !== undefined) {
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
export async function findPlan(store: ReadableStore, folder: string, base: RunId): Promise<StoredPlan | undefined> {
  for (;;) {
    const layout = layoutOf(folder, await latestRunId(store, folder, base));
    try {
      // First: where plans are lost, this names the latest run that has parts.
      await refuseForeign(store, layout);
      return await readPlan(store, layout);
    } catch (error) {
      // A run that another attempt has opened since may have moved its parts into place. It is the latest run now.
      // Where that cannot be read, `error` says more.
      if ((await latestRunId(store, folder, base).catch(() => layout.runId)) === layout.runId) {
        throw error;
      }
    }
  }
}

/** Names that a file system makes for itself. */
const systemNames: ReadonlySet<string> = new Set(["lost+found"]);

const ownFolderHint = "give each run a folder of its own, such as out/dt=${ds}";

/**
 * Refuses a folder that holds files which no run wrote, or parts of another job's run: readers would mix them with
 * ours.
 * @throws JobError OUTPUT_FOREIGN; OUTPUT_DAMAGED when a later run has parts and no plan; PLAN_CHANGED for a later run
 */
export async function refuseForeign(store: ReadableStore, layout: Layout): Promise<void> {
  const { runId } = layout;
  const entries = await store.list(layout.folder);
  const names = entries.map(({ name }) => name);
  const owner = runIdIn(await store.readText(layout.claim));
  if (owner !== undefined && owner !== splitRunId(runId).base) {
    throw new JobError("OUTPUT_FOREIGN", `checking ${layout.folder}: it belongs to run ${owner}, not to ${runId}`, {
      hint: ownFolderHint,
    });
  }
  await refuseOtherSuccess(store, layout, names);
  for (const entry of entries) {
    const { name } = entry;
    if (name.startsWith("_") || name.startsWith(".") || systemNames.has(name) || layout.spanOf(name) !== undefined) {
      continue;
    }
    const other = runOfPart(name);
    if (isEarlier(other, layout) || (await isEmptyFolder(store, layout.folder, entry))) {
      continue;
    }
    if (other === undefined) {
      throw new JobError("OUTPUT_FOREIGN", `checking ${layout.folder}: ${name} is there, which no run wrote`, {
        hint: "output.parquet.path must be a folder of its own",
      });
    }
    if (isLater(other, layout)) {
      throw await laterRun(store, layout, names);
    }
    throw new JobError(
      "OUTPUT_FOREIGN",
      `checking ${layout.folder}: ${name} is there, a part of run ${other}, not of ${runId}`,
      { hint: ownFolderHint },
    );
  }
}

/** Some programs make folders in stores of objects, as empty objects. */
async function isEmptyFolder(store: ReadableStore, folder: string, { name, sizeBytes }: Entry): Promise<boolean> {
  const path = `${folder}/${name}`;
  const entries = sizeBytes === undefined ? await ifReadable(store.list(path)) : undefined;
  for (const entry of entries ?? []) {
    if (!(await isEmptyFolder(store, path, entry))) {
      return false;
    }
  }
  return entries !== undefined;
}

/** Refuses a `_SUCCESS` without a manifest, unless it names a run of this job. */
async function refuseOtherSuccess(store: ReadableStore, layout: Layout, names: readonly string[]): Promise<void> {
  const success = basename(layout.success);
  if (!names.includes(success) || names.includes(basename(layout.manifest))) {
    return;
  }
  const run = runIdIn(await store.readText(layout.success));
  if (run === undefined || !isSameJob(run, layout)) {
    throw new JobError(
      "OUTPUT_FOREIGN",
      `checking ${layout.folder}: it has a ${success} but no manifest of this program`,
      { hint: "output.parquet.path must be a folder of its own" },
    );
  }
}

/** The later run was opened since, or its plan was removed. */
async function laterRun(store: ReadableStore, layout: Layout, names: readonly string[]): Promise<JobError> {
  const runs = names.flatMap((name) => runOfPart(name) ?? []).filter((run) => isLater(run, layout));
  const last = runs.reduce((one, other) => (isLater(other, layoutOf(layout.folder, one)) ? other : one));
  const { plan } = layoutOf(layout.folder, last);
  return (await store.stat(plan)) === undefined
    ? damagedOutput(last, `checking ${layout.folder}: it has parts of run ${last}, and no ${plan}`, "restore the plan")
    : superseded(layout, last);
}

const schema = z.object({ run_id: z.string() });

/** The run that the text of a `run.json` or `_SUCCESS` names; undefined for no text, or one that names none. */
export function runIdIn(text: string | undefined): RunId | undefined {
  return text === undefined ? undefined : (schema.safeParse(parseJson(text)).data?.run_id as RunId | undefined);
}

function claimText({ runId }: Pick<Layout, "runId">): string {
  return `${JSON.stringify({ run_id: splitRunId(runId).base })}\n`;
}

/** The text of a run's `_SUCCESS`. */
export function successText({ plan, planId }: StoredPlan): string {
  return `${JSON.stringify({ run_id: plan.runId, plan_id: planId })}\n`;
}

/**
 * The text of a plan as it is stored. Its last line holds the sha256 of the rest, so that a damaged plan which still
 * parses (another column bound, another row count) is not carried out.
 * @public so that tests store a plan of their own
 */
export function sealedText(plan: Plan): string {
  const text = planToText(plan);
  return text.replace(textEnd, `,\n "sha256": "${sha256Of(text)}"\n}\n`);
}

const textEnd = /\n\}\n$/;
const sealedEnd = /,\n "sha256": "([0-9a-f]{64})"\n\}\n$/;

/** undefined: the text is not the one that was sealed, or this version cannot read it. */
function unseal(sealed: string): StoredPlan | undefined {
  const pruned = parseTombstone(sealed);
  if (pruned !== undefined) {
    return { plan: pruned.plan, planId: sha256Of(sealed), pruned };
  }
  const [, seal] = sealedEnd.exec(sealed) ?? [];
  const text = sealed.replace(sealedEnd, "\n}\n");
  // A digest of its own: `seal` is a slice of the text and would keep all of it in memory.
  const planId = sha256Of(text);
  const plan = seal === planId ? parsePlan(text) : undefined;
  return plan === undefined ? undefined : { plan, planId };
}

/**
 * The text of the marker in place of a lost plan. It is not a plan; attempts of the run before find it, and stop.
 * @public so that tests find the marker
 */
export const lostPlanText = '{"format":"infer-batch-lost-plan"}\n';

/** An output file that differs from what was committed. */
export interface DamagedFile {
  readonly path: string;
  readonly found: string;
  readonly cause?: unknown;
}

/** The error for a damaged output that a new run can replace. `hint`: another way to repair it. */
export function damagedOutput(
  runId: string,
  message: string,
  hint: string,
  { found, cause }: { readonly found?: readonly string[]; readonly cause?: unknown } = {},
): JobError {
  return new JobError("OUTPUT_DAMAGED", message, {
    hint: `${hint}; or start over with --new-run, which scores all rows again and then removes the old parts`,
    damage: { runId, ...(found === undefined ? {} : { found }) },
    cause,
  });
}

/**
 * Reports all damaged files of a run in one error; does nothing where there are none.
 * @throws JobError OUTPUT_DAMAGED
 */
export function refuseDamaged(
  runId: string,
  files: readonly DamagedFile[],
  hint: { readonly one: string; readonly more: string },
): void {
  const [first, ...others] = files.toSorted((a, b) => (a.path < b.path ? -1 : 1));
  if (first === undefined) {
    return;
  }
  const more =
    others.length === 0 ? "" : `; ${others.length} more ${others.length === 1 ? "part is" : "parts are"} damaged`;
  const found = [first, ...others].map((file) => `${file.path}: ${file.found}`);
  throw damagedOutput(
    runId,
    `checking ${first.path}: ${first.found}${more}`,
    others.length === 0 ? hint.one : `${hint.more} (infer-batch status lists them)`,
    { found, cause: first.cause instanceof Error ? first.cause : undefined },
  );
}

/** Hints at how damaged parts of a published run are repaired. An approved run is scored completely. */
export function repairOfParts({ staged }: Pick<Plan, "staged">): { readonly one: string; readonly more: string } {
  return staged
    ? { one: "restore it", more: "restore them" }
    : {
        one: "restore it; or delete _SUCCESS and the part, and run the same command again: its span is then scored anew",
        more: "restore them; or delete _SUCCESS and the parts, and run the same command again: their spans are then scored anew",
      };
}

/**
 * The error for a part that is found gone or changed when its run is finished. A staged run is approved then: it scores no
 * span again, and a new run can take its place.
 * @param hint how a run that is not staged goes on
 */
export function lostPart({ runId, staged }: Pick<Plan, "runId" | "staged">, message: string, hint: string): JobError {
  return staged
    ? damagedOutput(runId, message, repairOfParts({ staged }).one)
    : new JobError("OUTPUT_DAMAGED", message, { hint });
}

/** The error for an attempt whose run was superseded by a later one. */
export function superseded({ folder, runId }: Pick<Layout, "folder" | "runId">, later: string): JobError {
  return new JobError("PLAN_CHANGED", `checking ${folder}: run ${later} came after ${runId}`, {
    hint: "run the same command again: it continues that run",
  });
}
