import { paramTexts, splitRunId } from "../../plan/identity.js";
import { decidedText, everyRun } from "../../publish/recorded-run.js";
import type { LoadedSpec } from "../../spec/load.js";
import { JobError } from "../../util/errors.js";
import { openLoaded } from "../job-context.js";
import { type JobOptions, readSpec } from "./read-spec.js";

export interface RunOptions extends JobOptions {
  /** The id of a run, in place of its params. */
  readonly run?: string | undefined;
}

/**
 * Reads a spec with the params of a run of the job, which is looked for at the target; without an id, with the params of
 * the command.
 * @throws JobError USAGE where the target has no such run, or a later one of the same params
 */
export async function readRunSpec(specPath: string, { run, ...options }: RunOptions): Promise<LoadedSpec> {
  return run === undefined || options.param.length > 0
    ? await readSpec(specPath, options)
    : await readSpecOfRun(specPath, { run, ...options });
}

/**
 * Reads a spec with the params of a run of the job, which is looked for at the target. Params of the command only name the
 * target.
 * @throws JobError USAGE where the target has no such run, or a later one of the same params
 */
export async function readSpecOfRun(
  specPath: string,
  { run, ...options }: RunOptions & { readonly run: string },
): Promise<LoadedSpec> {
  const loaded = await readSpec(specPath, options, { standIns: "all" });
  await using job = await openLoaded(loaded, specPath);
  const runs = await job.sink.history({ job: loaded.spec.name, last: everyRun });
  const found = runs.find(({ runId }) => runId === run);
  if (found?.plan === undefined) {
    const { name, params } = loaded.spec;
    const [param = "NAME"] = job.dateParam === undefined ? Object.keys(params) : [job.dateParam];
    throw new JobError(
      "USAGE",
      `looking for run ${run}: none of the ${runs.length} runs of ${name} that were found has this id`,
      {
        hint: `infer-batch history lists the runs of all dates; to name a run that it does not list, give its params: --param ${param}=…`,
      },
    );
  }
  const { base, number } = splitRunId(found.runId);
  const later = runs.map(({ runId }) => splitRunId(runId)).find((one) => one.base === base && one.number > number);
  if (later !== undefined) {
    const { decision, verdict } = found;
    const decided = decision === undefined ? "" : `\n  it was ${decidedText({ decision, verdict })}`;
    throw new JobError("USAGE", `looking for run ${run}: run ${base}-r${later.number} came after it${decided}`, {
      hint: "name the later run; infer-batch history says what became of this one",
    });
  }
  const param = paramTexts(found.plan.params);
  return await readSpec(specPath, { param });
}
