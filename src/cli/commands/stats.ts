import { ofLastRun } from "../../job/chain.js";
import { type CommandLine, paramFlag, jsonFlag, type CommandAnswer } from "../flags.js";
import { openLoaded, readSpecOfRun } from "../../job/open.js";
import { type JobOptions, readSpec } from "../../job/reading.js";
import { type RunStats, statsJson, statsText } from "../../report/stats-text.js";
import { runStats } from "../../run/status.js";
import { JobError } from "../../base/errors.js";

export const statsCommand: CommandLine = {
  flags: {
    ...paramFlag,
    "--run <id>":
      "Show the run of this id, which may have other params: the latest run of its params, or a published one before it. Default: the latest run of these params",
    ...jsonFlag,
  },
  run: showStats,
};

interface StatsOptions extends JobOptions {
  readonly run?: string;
  readonly json?: boolean;
}

async function showStats(spec: string, options: StatsOptions): Promise<CommandAnswer> {
  const { run } = options;
  const asked = await readSpec(spec, options, run === undefined ? {} : { standIns: "dates" });
  const loaded = run === undefined ? await ofLastRun(asked, spec) : asked;
  await using opened = await openLoaded(loaded, spec);
  const told =
    (await runStats(opened.job, opened.sink, run)) ?? (await statsElsewhere(spec, { ...options, run: run ?? "" }));
  return { json: () => statsJson(told), text: (width) => statsText(told, width) };
}

/** Of a run with other params, which is not published. */
async function statsElsewhere(spec: string, options: StatsOptions & { readonly run: string }): Promise<RunStats> {
  await using opened = await openLoaded(await readSpecOfRun(spec, options), spec);
  const stats = await runStats(opened.job, opened.sink, options.run);
  if (stats === undefined) {
    throw new JobError("USAGE", `reading the profiles of run ${options.run}: it has no profiles`, {
      hint: "infer-batch history shows its state",
    });
  }
  return stats;
}
