import { basename } from "node:path";
import { JobError } from "../../../util/errors.js";
import { splitRunId } from "../../../plan/identity.js";
import { damagedOutput, overtaken } from "./damage.js";
import { ifThere, listFolder, type TargetState } from "./file-system.js";
import { isEarlier, isLater, isSameJob, type Layout, layoutOf, runOfPart } from "./layout.js";
import { runIdIn } from "./named-run.js";

/** Names that are nobody's data. */
const harmless: ReadonlySet<string> = new Set(["lost+found"]);

const ownFolderHint = "give each run a folder of its own, such as out/dt=${ds}";

/**
 * Refuses files that nobody could tell from ours, or that are another run's: a reader would mix them up.
 * @throws JobError OUTPUT_FOREIGN
 */
export async function refuseForeign(fs: TargetState, layout: Layout): Promise<void> {
  const { runId } = layout;
  const names = await listFolder(fs, layout.folder);
  const owner = runIdIn(await ifThere(fs.readText(layout.claim)));
  if (owner !== undefined && owner !== splitRunId(runId).base) {
    throw new JobError("OUTPUT_FOREIGN", `looking at ${layout.folder}: it belongs to run ${owner}, not to ${runId}`, {
      hint: ownFolderHint,
    });
  }
  await refuseOtherSuccess(fs, layout, names);
  for (const name of names) {
    if (name.startsWith("_") || name.startsWith(".") || harmless.has(name) || layout.spanOf(name) !== undefined) {
      continue;
    }
    const other = runOfPart(name);
    if (isEarlier(other, layout)) {
      continue;
    }
    if (other === undefined) {
      throw new JobError("OUTPUT_FOREIGN", `looking at ${layout.folder}: ${name} is there, which no run wrote`, {
        hint: "output.parquet.path must be a folder of its own",
      });
    }
    if (isLater(other, layout)) {
      throw await laterRun(fs, layout, names);
    }
    throw new JobError(
      "OUTPUT_FOREIGN",
      `looking at ${layout.folder}: ${name} is there, a part of run ${other}, not of ${runId}`,
      { hint: ownFolderHint },
    );
  }
}

/** @throws JobError OUTPUT_FOREIGN for a `_SUCCESS` without a manifest, unless it is of these runs */
async function refuseOtherSuccess(fs: TargetState, layout: Layout, names: readonly string[]): Promise<void> {
  const success = basename(layout.success);
  if (!names.includes(success) || names.includes(basename(layout.manifest))) {
    return;
  }
  const run = runIdIn(await ifThere(fs.readText(layout.success)));
  if (run === undefined || !isSameJob(run, layout)) {
    throw new JobError(
      "OUTPUT_FOREIGN",
      `looking at ${layout.folder}: it has a ${success} but no manifest of this program`,
      { hint: "output.parquet.path must be a folder of its own" },
    );
  }
}

/** Parts of later runs are there: one came meanwhile, or something removed its plan. */
async function laterRun(fs: TargetState, layout: Layout, names: readonly string[]): Promise<JobError> {
  const runs = names.flatMap((name) => runOfPart(name) ?? []).filter((run) => isLater(run, layout));
  const last = runs.reduce((one, other) => (isLater(other, layoutOf(layout.folder, one)) ? other : one));
  const { plan } = layoutOf(layout.folder, last);
  return (await ifThere(fs.sizeOf(plan))) === undefined
    ? damagedOutput(`looking at ${layout.folder}: it has parts of run ${last}, and no ${plan}`, {
        hint: "restore the plan",
        damage: { runId: last },
      })
    : overtaken(layout, last);
}
