import { basename } from "node:path";
import { JobError } from "../../../util/errors.js";
import { splitRunId } from "../../../plan/identity.js";
import { damagedOutput, superseded } from "./damage.js";
import { ifThere, listFolder, type TargetState } from "./file-system.js";
import { isEarlier, isLater, isSameJob, type Layout, layoutOf, runOfPart } from "./layout.js";
import { runIdIn } from "./named-run.js";

/** Names that a file system makes for itself. */
const systemNames: ReadonlySet<string> = new Set(["lost+found"]);

const ownFolderHint = "give each run a folder of its own, such as out/dt=${ds}";

/**
 * Refuses a folder that holds files which no run wrote, or parts of another job's run: readers would mix them with
 * ours.
 * @throws JobError OUTPUT_FOREIGN; OUTPUT_DAMAGED when a later run has parts and no plan; PLAN_CHANGED for a later run
 */
export async function refuseForeign(fs: TargetState, layout: Layout): Promise<void> {
  const { runId } = layout;
  const names = await listFolder(fs, layout.folder);
  const owner = runIdIn(await ifThere(fs.readText(layout.claim)));
  if (owner !== undefined && owner !== splitRunId(runId).base) {
    throw new JobError("OUTPUT_FOREIGN", `checking ${layout.folder}: it belongs to run ${owner}, not to ${runId}`, {
      hint: ownFolderHint,
    });
  }
  await refuseOtherSuccess(fs, layout, names);
  for (const name of names) {
    if (name.startsWith("_") || name.startsWith(".") || systemNames.has(name) || layout.spanOf(name) !== undefined) {
      continue;
    }
    const other = runOfPart(name);
    if (isEarlier(other, layout)) {
      continue;
    }
    if (other === undefined) {
      throw new JobError("OUTPUT_FOREIGN", `checking ${layout.folder}: ${name} is there, which no run wrote`, {
        hint: "output.parquet.path must be a folder of its own",
      });
    }
    if (isLater(other, layout)) {
      throw await laterRun(fs, layout, names);
    }
    throw new JobError(
      "OUTPUT_FOREIGN",
      `checking ${layout.folder}: ${name} is there, a part of run ${other}, not of ${runId}`,
      { hint: ownFolderHint },
    );
  }
}

/** Refuses a `_SUCCESS` without a manifest, unless it names a run of this job. @throws JobError OUTPUT_FOREIGN */
async function refuseOtherSuccess(fs: TargetState, layout: Layout, names: readonly string[]): Promise<void> {
  const success = basename(layout.success);
  if (!names.includes(success) || names.includes(basename(layout.manifest))) {
    return;
  }
  const run = runIdIn(await ifThere(fs.readText(layout.success)));
  if (run === undefined || !isSameJob(run, layout)) {
    throw new JobError(
      "OUTPUT_FOREIGN",
      `checking ${layout.folder}: it has a ${success} but no manifest of this program`,
      { hint: "output.parquet.path must be a folder of its own" },
    );
  }
}

/** The error for parts of a later run: the later run was opened since, or its plan was removed. */
async function laterRun(fs: TargetState, layout: Layout, names: readonly string[]): Promise<JobError> {
  const runs = names.flatMap((name) => runOfPart(name) ?? []).filter((run) => isLater(run, layout));
  const last = runs.reduce((one, other) => (isLater(other, layoutOf(layout.folder, one)) ? other : one));
  const { plan } = layoutOf(layout.folder, last);
  return (await ifThere(fs.sizeOf(plan))) === undefined
    ? damagedOutput(`checking ${layout.folder}: it has parts of run ${last}, and no ${plan}`, {
        hint: "restore the plan",
        damage: { runId: last },
      })
    : superseded(layout, last);
}
