import { keptJob } from "../../plan/kept-predictions.js";
import type { OtherRuns } from "../../publish/recorded-run.js";
import type { JobContext } from "../../scoring/context.js";

/** The limit of names in a message. */
const shownLimit = 3;

/**
 * Warns where rows may be left because the job, its folders or its table had another name when they were scored: an erasure
 * finds runs by these names.
 * @param runsFound how many runs of the job were found
 */
export function warnOfUnsearched(
  { spec: { name }, sink, log }: Pick<JobContext, "spec" | "sink" | "log">,
  runsFound: number,
  { jobs, tables }: OtherRuns,
): void {
  const isTable = sink.erase !== undefined; // which is searched whole, whichever job wrote its rows
  const others = isTable ? [] : [...jobs].filter((job) => job !== keptJob(name) && !isKeptOf(job, jobs));
  if (others.length > 0) {
    log.warn(
      `some folders that the spec names have runs of job ${shown(others)}, which are not searched; if this job had that name before, erase again with this in the spec: name: ${others[0]}`,
    );
  }
  if (tables.size > 0) {
    const all = [...tables];
    log.warn(
      `runs of job ${name} also wrote to ${shown(all)}, which is not searched; to erase there, erase again with this in the spec: output.postgres.table: ${all[0]}`,
    );
  }
  if (runsFound === 0 && jobs.size === 0 && tables.size === 0) {
    const [found, key] = isTable
      ? [`no run has written to ${sink.target}`, "output.postgres.table"]
      : [`no run of job ${name} is in ${sink.target}, nor in its folders of other params`, "output.parquet.path"];
    log.warn(`${found}; if the name of the job or ${key} was changed, erase again with the old one in the spec`);
  }
}

/** Whether a job is the kept predictions of one of these jobs, which are erased with its rows. */
function isKeptOf(job: string, jobs: ReadonlySet<string>): boolean {
  return [...jobs].some((other) => keptJob(other) === job);
}

function shown(names: readonly string[]): string {
  const more = names.length - shownLimit;
  return `${names.slice(0, shownLimit).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}
