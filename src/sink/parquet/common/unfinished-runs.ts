import type { RunId } from "../../../plan/plan.js";
import { ifThere, listFolder, type TargetState } from "./file-system.js";
import { layoutOf } from "./layout.js";
import { runIdIn } from "./named-run.js";
import type { UnfinishedRun } from "../../port.js";
import { latestRun, readPlan } from "./stored-plan.js";

/** Folders that are searched below one folder: the last by name, which are the latest where names are dates. */
const foldersLimit = 400;
/** Folders that are read at once. In S3, each takes some requests. */
const foldersAtOnce = 24;

/**
 * Finds unfinished runs of a job in sibling folders: those of other params. `pattern`: segments of the output path
 * below `root`; a `RegExp` stands for a segment that contains a param.
 */
export async function findUnfinished(
  fs: TargetState,
  { root, pattern }: { root: string; pattern: readonly (string | RegExp)[] },
  { job, base }: { job: string; base: RunId },
): Promise<UnfinishedRun[]> {
  const found: UnfinishedRun[] = [];
  const folders = await expand(fs, root, pattern);
  for (let start = 0; start < folders.length; start += foldersAtOnce) {
    const group = folders.slice(start, start + foldersAtOnce);
    const runs = await Promise.all(group.map((folder) => unfinishedIn(fs, folder, { job, base })));
    found.push(...runs.filter((run) => run !== undefined));
  }
  return found;
}

async function expand(fs: TargetState, root: string, pattern: readonly (string | RegExp)[]): Promise<string[]> {
  if (!pattern.some((segment) => segment instanceof RegExp)) {
    return [];
  }
  let folders = [root];
  for (const segment of pattern) {
    const next: string[] = [];
    for (const folder of folders) {
      if (typeof segment === "string") {
        next.push(`${folder}/${segment}`);
      } else {
        const names = await namesIn(fs, folder === "" ? "/" : folder);
        next.push(...names.filter((name) => segment.test(name)).map((name) => `${folder}/${name}`));
      }
    }
    folders = next.toSorted().slice(-foldersLimit);
  }
  return folders;
}

/** Lists a folder; a folder that cannot be listed counts as empty, since this user could not finish a run there. */
async function namesIn(fs: TargetState, folder: string): Promise<string[]> {
  return await listFolder(fs, folder).catch(() => []);
}

async function unfinishedIn(
  fs: TargetState,
  folder: string,
  { job, base }: { job: string; base: RunId },
): Promise<UnfinishedRun | undefined> {
  try {
    const claim = layoutOf(folder, base).claim;
    const owner = runIdIn(await ifThere(fs.readText(claim)));
    if (owner === undefined || owner === base || !owner.startsWith(`${job}-`)) {
      return undefined;
    }
    const layout = layoutOf(folder, await latestRun(fs, folder, owner));
    const finished = runIdIn(await ifThere(fs.readText(layout.success)));
    const stored = finished === layout.runId ? undefined : await readPlan(fs, layout);
    return stored === undefined || stored.plan.job !== job ? undefined : { plan: stored.plan, target: folder };
  } catch {
    return undefined; // damage of another run is no error of this one
  }
}
