import type { RunProfile } from "../../checks/profile/run-profile.js";
import type { Plan } from "../../plan/plan.js";
import { type DatedRun, logicalDateOf, runsOfSeries } from "../../publish/published-run.js";
import type { RunVerdict } from "../../publish/lifecycle.js";
import type { RunReview } from "../../report/run-review.js";
import type { JobContext } from "../../scoring/context.js";
import { messageOf } from "../../util/errors.js";
import { mapBounded } from "../../util/promises.js";
import { readPinned, readsAtOnce } from "./baseline.js";
import { readersOf } from "./readers.js";

/** Earlier runs in the small charts of a page. */
const shownRuns = 29;

type Shown = Pick<RunReview, "readers" | "history" | "seconds">;

/**
 * Finds what the page of a run shows of its series: the last published runs before it, how long these and the run itself
 * were scored, and what readers have if it is held. Nothing if the spec asks for no page. A failure is only logged.
 */
export async function runsOfPage(
  context: JobContext,
  { plan, verdict }: { readonly plan: Plan; readonly verdict: RunVerdict },
): Promise<Shown> {
  if (context.spec.report.html === undefined) {
    return {};
  }
  const readers = verdict.verdict.outcome === "hold" ? await readersOf(context, plan) : undefined;
  try {
    const { job, params, dateParam } = plan;
    const date = logicalDateOf(plan);
    if (dateParam === null || date === undefined) {
      return { readers };
    }
    const nights = runsOfSeries(await context.sink.published("everywhere"), { job, params, dateParam });
    const latest = nights.findLast((night) => night.date !== date)?.date;
    const earlier = nights.filter((night) => night.date < date).slice(-shownRuns);
    const [own] = await context.sink.history({ job, runId: plan.runId, last: 1 });
    const took = await mapBounded(earlier, readsAtOnce, async (run) => ({
      runId: run.runId,
      seconds: await run.seconds(),
    }));
    return {
      readers: readers && { ...readers, latest },
      history: await profilesOf(context, earlier),
      seconds: new Map(
        [...took, ...(own === undefined ? [] : [own])].flatMap(({ runId, seconds }) =>
          seconds === null ? [] : [[runId, seconds]],
        ),
      ),
    };
  } catch (error) {
    context.log.debug(`reading the published runs for report.html: ${messageOf(error)}`);
    return { readers };
  }
}

/** Reads the profiles of runs, those that cannot be read excepted. */
async function profilesOf(context: JobContext, runs: readonly DatedRun[]): Promise<RunProfile[]> {
  const read = async (run: DatedRun): Promise<RunProfile[]> => {
    try {
      return [await readPinned(context, run)];
    } catch (error) {
      context.log.debug(`reading a profile for report.html: ${messageOf(error)}`);
      return [];
    }
  };
  return (await mapBounded(runs, readsAtOnce, read)).flat();
}
