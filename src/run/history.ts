import { type RunGroup, groupRuns } from "../jobs/prune-choice.js";
import { type HistoryRequest, type RecordedRun, latestFirst } from "../publish/recorded-run.js";
import type { JobContext } from "../scoring/context.js";
import { comparedNights } from "../checks/check.js";
import type { RunProfile } from "../checks/profile/run-profile.js";
import { countCommitted } from "./attempt.js";
import { runIdOf } from "../plan/identity.js";
import { spanCount } from "../plan/spans.js";
import { parseRunProfile, runProfileOf } from "../publish/profile-text.js";
import { runsOfSeries } from "../publish/published-run.js";
import { count } from "../report/report.js";
import type { RunStats } from "../report/stats-text.js";
import { comparisonDocument } from "../sink/ledger.js";
import type { StoredPlan } from "../sink/port.js";
import { JobError } from "../util/errors.js";
import { mapBounded } from "../util/promises.js";
import { readsAtOnce } from "./baseline.js";
import { finishingHint } from "./hints.js";
import { notPlanned, openOwn } from "./resume.js";
import { rowsOf } from "../publish/span-record.js";
import { decisionText } from "../publish/lifecycle.js";

export interface History {
  /** The latest first. */
  readonly runs: readonly RecordedRun[];
  /** Whether there are more. */
  readonly more: boolean;
}

/** Reads at least the `last` runs of the job, if there are so many, by params. */
export async function recordedGroups(
  { spec, sink }: Pick<JobContext, "spec" | "sink">,
  request: Omit<HistoryRequest, "job">,
): Promise<RunGroup[]> {
  return groupRuns(await sink.history({ ...request, job: spec.name }));
}

/** Returns the latest runs of the job at its target. Writes nothing. */
export async function runHistory(job: Pick<JobContext, "spec" | "sink">, last: number): Promise<History> {
  const groups = await recordedGroups(job, { last: last + 1 });
  const found = latestFirst(groups.flatMap(({ runs }) => runs));
  return { runs: found.slice(0, last), more: found.length > last };
}

/**
 * Reads the profiles of a run: of the latest run of these params, or of the run `runId`, which may be any published run of
 * the series; undefined: it is none of these. Writes nothing.
 * @throws JobError USAGE for a run that is not planned or unfinished; DISCARDED, PRUNED, PLAN_CHANGED
 */
export async function runStats(context: JobContext, runId: string | undefined): Promise<RunStats | undefined> {
  const { spec, sink, sha256 } = context;
  const base = runIdOf(spec.name, spec.params, sha256);
  const stored = await sink.find(base);
  if (runId !== undefined && runId !== stored?.plan.runId) {
    return await publishedStats(context, runId);
  }
  if (stored === undefined) {
    throw notPlanned(context, "reading the profiles of");
  }
  return await statsOf(context, stored);
}

async function statsOf(context: JobContext, stored: StoredPlan): Promise<RunStats> {
  const { command } = context;
  const { plan } = stored;
  const run = await openOwn(context, stored);
  const [committed, spans] = [countCommitted(run), spanCount(plan)];
  if (run.state.kind === "discarded") {
    const shown = `${command(plan.params, { verb: "status" })} shows its checks`;
    throw new JobError(
      "DISCARDED",
      `${reading(plan.runId)}: it was ${decisionText(run.state.decision, true)}; its rows are removed`,
      {
        hint: `${shown}; to score again: ${command(plan.params)} --new-run`,
      },
    );
  }
  if (committed < spans) {
    const found = `${committed} of ${count(spans, "span")} committed`;
    throw notThere(plan.runId, found, await finishingHint(context, plan));
  }
  const found = await run.profile();
  const { kind: state } = run.state;
  const profile = runProfileOf(plan, { profile: found, ...rowsOf(run.spans) });
  const comparison = await context.sink.ledger.read(plan.runId, comparisonDocument);
  return { profile, earlier: await earlierNights(context, profile), comparison, state };
}

/** Reads the profiles of the last published runs of earlier dates. One that cannot be read is no night that is known. */
async function earlierNights(
  { spec, sink, dateParam }: Pick<JobContext, "spec" | "sink" | "dateParam">,
  { date }: RunProfile,
): Promise<RunProfile[]> {
  if (dateParam === undefined || date === "") {
    return [];
  }
  const published = (await sink.published("everywhere")).filter(({ isNormal }) => isNormal);
  const nights = runsOfSeries(published, { job: spec.name, params: spec.params, dateParam, date });
  const texts = await mapBounded(nights.slice(-comparedNights), readsAtOnce, (run) => sink.readProfile(run));
  return texts.flatMap((text) => parseRunProfile(text) ?? []);
}

/** Finds a run among the published runs whose params equal this run's, except for dates. */
async function publishedStats(context: JobContext, runId: string): Promise<RunStats | undefined> {
  const { spec, sink, dateParam } = context;
  const published = dateParam === undefined ? [] : await sink.published("everywhere");
  const asked = published.filter((run) => run.runId === runId);
  const [found] = runsOfSeries(asked, { job: spec.name, params: spec.params, dateParam });
  const profile = found && parseRunProfile(await sink.readProfile(found));
  return profile && { profile, earlier: await earlierNights(context, profile), state: "published" };
}

function notThere(runId: string, finding: string, hint: string): JobError {
  return new JobError("USAGE", `${reading(runId)}: ${finding}`, { hint });
}

function reading(runId: string): string {
  return `reading the profiles of run ${runId}`;
}
