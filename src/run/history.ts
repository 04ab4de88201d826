import type { JobSpec } from "../job/jobfile/job-spec.js";
import { count } from "../base/shown-numbers.js";
import { groupRuns, type RunGroup } from "./series/prune-choice.js";
import { type HistoryRequest, latestFirst, type RecordedRun } from "./lifecycle/recorded-run.js";
import type { Job, PlacedSpec, Input } from "../flow/context.js";
import {
  comparedNights,
  defaultLimits,
  type Finding,
  type Limits,
  olderNights,
  timesLimit,
  type Verdict,
} from "../checks/check.js";
import type { RunProfile } from "../checks/profile/run-profile.js";
import { isWhole } from "./attempt.js";
import { spanCount } from "./plan/spans.js";
import { decisionText } from "./lifecycle/lifecycle.js";
import { isRunProfile, parseRunProfile, parseWholeProfile, runProfileOf } from "./lifecycle/profile-text.js";
import { normalAndOthers, runsOfSeries } from "./lifecycle/published-run.js";
import type { RunStats } from "../report/stats-text.js";
import { comparisonDocument } from "../stores/ledger.js";
import type { StoredPlan, Sink } from "../targets/target.js";
import { JobError } from "../base/errors.js";
import { mapBounded } from "../base/promises.js";
import { sha256Of } from "../base/sha256.js";
import { finishingHint, newRunCommand } from "./hints.js";
import { findPlanned, openOwn } from "./resume.js";
import { rowsOf } from "./lifecycle/span-record.js";
import type { PinnedFile, PinnedRun, PlannedChecks } from "./plan/plan.js";
import { earlierThan, judge } from "../checks/checks.js";
import { limitsOf } from "./lifecycle/verdict-text.js";

export interface History {
  /** The latest first. */
  readonly runs: readonly RecordedRun[];
  /** Whether there are more. */
  readonly more: boolean;
}

/** Reads at least the `last` runs of the job, if there are so many, by params. */
export async function recordedGroups(
  spec: JobSpec,
  sink: Sink,
  request: Omit<HistoryRequest, "job">,
): Promise<RunGroup[]> {
  return groupRuns(await sink.history({ ...request, job: spec.name }));
}

/** Returns the latest runs of the job at its target. Writes nothing. */
export async function runHistory(spec: JobSpec, sink: Sink, last: number): Promise<History> {
  const groups = await recordedGroups(spec, sink, { last: last + 1 });
  const found = latestFirst(groups.flatMap(({ runs }) => runs));
  return { runs: found.slice(0, last), more: found.length > last };
}

/**
 * Reads the profiles of a run: of the latest run of these params, or of the run `runId`, which may be any published run of
 * the series; undefined: it is none of these. Writes nothing.
 * @throws JobError USAGE for a run that is not planned or unfinished; DISCARDED, PRUNED, PLAN_CHANGED
 */
export async function runStats(job: Job, sink: Sink, runId: string | undefined): Promise<RunStats | undefined> {
  const isLatest = runId === undefined || runId === (await sink.find(job.base))?.plan.runId;
  return isLatest
    ? await statsOf(job, sink, await findPlanned(job, sink, "reading the profiles of"))
    : await publishedStats(job, sink, runId);
}

async function statsOf(job: Job, sink: Sink, stored: StoredPlan): Promise<RunStats> {
  const { command } = job;
  const { plan } = stored;
  const run = await openOwn(job, sink, stored);
  const { state, spans } = run;
  const reading = `reading the profiles of run ${plan.runId}`;
  if (state.kind === "discarded") {
    const found = `it was ${decisionText(state.decision, true)}; its rows are removed`;
    const shown = `${command(plan.params, { verb: "status" })} shows its checks`;
    const hint = `${shown}; to score again: ${newRunCommand(job, plan)}`;
    throw new JobError("DISCARDED", `${reading}: ${found}`, { hint });
  }
  if (!isWhole(run)) {
    const found = `${spans.size} of ${count(spanCount(plan), "span")} committed`;
    throw new JobError("USAGE", `${reading}: ${found}`, { hint: finishingHint(job, plan) });
  }
  const profile = runProfileOf(plan, { profile: await run.profile(), ...rowsOf(spans) });
  const comparison = await sink.ledger.read(plan.runId, comparisonDocument);
  return { profile, earlier: await earlierNights(job, sink, profile), comparison, state: state.kind };
}

/** Reads the profiles of the last published runs of earlier dates. One that cannot be read is no night that is known. */
async function earlierNights({ spec, dateParam }: Job, sink: Sink, { date }: RunProfile): Promise<RunProfile[]> {
  if (dateParam === undefined || date === "") {
    return [];
  }
  const published = (await sink.published("everywhere")).filter(({ isNormal }) => isNormal);
  const nights = runsOfSeries(published, { job: spec.name, params: spec.params, dateParam, date });
  const texts = await mapBounded(nights.slice(-comparedNights), readsAtOnce, (run) => sink.readProfile(run));
  return texts.flatMap((text) => parseRunProfile(text) ?? []);
}

/** Finds a run among the published runs whose params equal this run's, except for dates. */
async function publishedStats(job: Job, sink: Sink, runId: string): Promise<RunStats | undefined> {
  const { spec, dateParam } = job;
  const published = dateParam === undefined ? [] : await sink.published("everywhere");
  const asked = published.filter((run) => run.runId === runId);
  const [found] = runsOfSeries(asked, { job: spec.name, params: spec.params, dateParam });
  const profile = found && parseRunProfile(await sink.readProfile(found));
  return profile && { profile, earlier: await earlierNights(job, sink, profile), state: "published" };
}

const baselineKey = ["checks", "baseline"];

/** Reads what a run is compared with: the profiles of pinned runs, or the file of `checks.baseline`. */
export async function readBaseline(
  job: PlacedSpec,
  sink: Sink,
  input: Input,
  { baseline, profile: planned }: Pick<PlannedChecks, "baseline" | "profile">,
): Promise<RunProfile[]> {
  if (planned === undefined) {
    return await mapBounded(baseline, readsAtOnce, (run) => readPinned(sink, run));
  }
  const { pin, profile } = await readFile(job, input, planned.uri);
  if (pin.sha256 !== planned.sha256) {
    throw new JobError(
      "INPUT_CHANGED",
      `comparing ${planned.uri} with the plan of this unfinished run: its sha256 is ${pin.sha256}, planned ${planned.sha256}`,
      { hint: "restore the planned profile and run again; or abandon this run with --new-run" },
    );
  }
  return [profile];
}

/** Pins the file of `checks.baseline`; undefined: a run is compared with published runs. @throws JobError SPEC_INVALID */
export async function pinProfile(job: PlacedSpec, input: Input): Promise<PinnedFile | undefined> {
  const { baseline = "published" } = job.spec.checks ?? {};
  return baseline === "published" ? undefined : (await readFile(job, input, baseline)).pin;
}

async function readFile(
  { where }: PlacedSpec,
  { readGiven }: Input,
  uri: string,
): Promise<{ readonly pin: PinnedFile; readonly profile: RunProfile }> {
  const text = await readGiven(uri, baselineKey);
  const profile = parseWholeProfile(text);
  if (profile === undefined) {
    throw new JobError("SPEC_INVALID", `reading ${where(baselineKey)}: ${uri} is not the profile of a run`, {
      hint: "name a copy of _infer-batch/<run id>/profile.json of a finished run, or write published",
    });
  }
  return { pin: { uri, sha256: sha256Of(text) }, profile };
}

/** Checks that the profiles of pinned runs can be read. @throws JobError (75) when one cannot */
export async function requireProfiles(sink: Sink, pinned: readonly PinnedRun[]): Promise<void> {
  await mapBounded(pinned, readsAtOnce, async (run) => {
    if (!isRunProfile(await sink.readProfile(run))) {
      throw noProfile(run);
    }
  });
}

/** Reads the profile of a pinned run. @throws JobError (75) when it cannot be read */
export async function readPinned(sink: Sink, pinned: PinnedRun): Promise<RunProfile> {
  const profile = parseRunProfile(await sink.readProfile(pinned));
  if (profile === undefined) {
    throw noProfile(pinned);
  }
  return profile;
}

function noProfile({ runId }: PinnedRun): JobError {
  return new JobError("DISK", `reading the profile of run ${runId}: it is not one of this program`, {
    hint: "the checks compare this run with it; use the version of infer-batch that wrote it",
  });
}

/** Profiles that are read at once. */
export const readsAtOnce = 8;

/** What the checks of a spec say of published runs. */
export interface JudgedNights {
  readonly factor: number;
  /** The latest last. */
  readonly nights: readonly Verdict[];
  /** The columns that would have held a night, or warned of one, the one that held the most nights first. */
  readonly columns: readonly JudgedColumn[];
}

interface JudgedColumn {
  readonly held: number;
  readonly warned: number;
  /** The farthest of its results, which tells the column, and the date of its night. */
  readonly farthest: Finding;
  readonly date: string;
}

/**
 * Judges the last published runs of a series as if each were tonight, by their stored profiles. Writes nothing.
 * @throws JobError USAGE for a job whose runs have no order, or that has published none
 */
export async function judgeNights(job: Job, sink: Sink, last: number): Promise<JudgedNights> {
  const { spec, dateParam, command } = job;
  const doing = `judging the last runs of ${spec.name}`;
  if (dateParam === undefined) {
    throw new JobError("USAGE", `${doing}: no param is a date, so runs have no order`, {
      hint: "add one to the spec: ds: { type: date }, or ds: ${today}",
    });
  }
  const series = { job: spec.name, params: spec.params, dateParam };
  const published = normalAndOthers(await sink.published("everywhere"), series);
  if (published.length === 0) {
    throw new JobError("USAGE", `${doing}: none is published`, { hint: `${command(spec.params)} scores one` });
  }
  const read = published.slice(-(last + comparedNights + olderNights));
  const profiles = await mapBounded(read, readsAtOnce, (run) => readPinned(sink, run));
  const limits = (date: string): Limits =>
    spec.checks === undefined
      ? defaultLimits
      : limitsOf(spec.checks, { staged: true, params: { ...spec.params, [dateParam]: date } });
  const nights = profiles.slice(-last).map((run) => {
    const before = profiles.filter(({ date }, index) => date < run.date && read[index]?.isNormal === true);
    return judge({ run, earlier: earlierThan(run.date, before), limits: { ...limits(run.date), onFail: "hold" } });
  });
  return {
    factor: spec.checks?.factor ?? defaultLimits.factor,
    nights,
    columns: columnsOf(nights),
  };
}

function columnsOf(nights: readonly Verdict[]): JudgedColumn[] {
  const byColumn = new Map<string, { readonly date: string; readonly finding: Finding }[]>();
  for (const { date, results } of nights) {
    for (const finding of results.filter(({ level }) => level !== "pass")) {
      const key = JSON.stringify([finding.isFeature === true, finding.column]);
      byColumn.set(key, [...(byColumn.get(key) ?? []), { date, finding }]);
    }
  }
  const columns = [...byColumn.values()].map((signs): JudgedColumn => {
    const datesOf = (level: Finding["level"]): Set<string> =>
      new Set(signs.filter(({ finding }) => finding.level === level).map(({ date }) => date));
    const held = datesOf("hold");
    const warned = [...datesOf("warn")].filter((date) => !held.has(date)).length;
    const [{ finding: farthest, date } = signs[0] as (typeof signs)[0]] = signs.toSorted(
      (left, right) => timesLimit(right.finding) - timesLimit(left.finding),
    );
    return { held: held.size, warned, farthest, date };
  });
  return columns.toSorted((left, right) => right.held - left.held || right.warned - left.warned);
}
