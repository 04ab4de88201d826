import type { JobSpec } from "../job/jobfile/job-spec.js";
import type { RejectedRow } from "../columns/types.js";
import type { RunId } from "./plan/plan.js";
import { type AttemptFailure, latestFirst, type RecordedRun } from "./lifecycle/recorded-run.js";
import type { RunComparison } from "./lifecycle/erasure.js";
import { type Decision, isRolledBack, decisionText } from "./lifecycle/lifecycle.js";
import { commandList, type PaidReport, toScoreAgain, type VerdictReport } from "../report/report.js";
import { type CommittedBy, countSpans, type RowsOfRun } from "./lifecycle/span-record.js";
import { spanAt, spanCount } from "./plan/spans.js";
import { comparisonDocument, decisionDocument, verdictDocument } from "../stores/ledger.js";
import type { RunSink, Sink, StoredPlan } from "../targets/target.js";
import { JobError, orError } from "../base/errors.js";
import { lastFailure as lastFailureOf, isWhole } from "./attempt.js";
import { lostSpans, verdictReport } from "./conclude.js";
import { paidReport } from "./paid.js";
import {
  againCommand,
  decidingCommands,
  eraseAgain,
  newRunCommand,
  readersLine,
  rolledBackReport,
  spellOut,
  unfinishedLines,
  unfinishedRuns,
  type UnfinishedText,
  finishingHint,
} from "./hints.js";
import { findPlanned, openOwn, refuseElsewhere } from "./resume.js";
import type { Job, Log } from "../flow/opened-job.js";
import { count } from "../base/shown-numbers.js";
import { groupRuns } from "./series/prune-choice.js";
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
import { parseRunProfile, runProfileOf } from "./lifecycle/profile-text.js";
import { normalAndOthers, runsOfSeries } from "./lifecycle/published-run.js";
import type { RunStats } from "../report/stats-text.js";
import { mapBounded } from "../base/promises.js";
import { earlierThan, judge } from "../checks/checks.js";
import { limitsOf } from "./lifecycle/verdict-text.js";
import { readsAtOnce, readPinnedProfile } from "./checks.js";
import type { LookAtPaid } from "../models/engine.js";

/* What is known of the runs of a job: state, history, profiles, rejected rows. */

export interface DescribedRun {
  readonly runId: RunId;
  readonly status:
    | "not_planned"
    | "unfinished"
    | "held"
    | "approved"
    | "published"
    | "rolled_back"
    | "discarded"
    | "superseded"
    | "pruned"
    | "damaged";
  /** What the checks say; null: they have not judged the run. */
  readonly verdict: VerdictReport | null;
  /** How a second model agrees; undefined: the run has none, or they are not compared. */
  readonly comparison?: RunComparison | undefined;
  /** What was decided on the run; null: nothing. */
  readonly decision: Decision | null;
  /** The error that the last attempt which failed ended with, while the run is not published; null: none is recorded. */
  readonly lastFailure: AttemptFailure | null;
  /** What an unfinished run has paid for and asked for; undefined: predictions are free, or it was not read. */
  readonly paid?: PaidReport | undefined;
  /** What readers have while the run is held, discarded or rolled back, and what publishing it would replace, a line each. */
  readonly readers: readonly string[];
  /** The commands that decide on a held run, continue an unfinished one, or score one that is not planned, or was discarded or rolled back; none for another. */
  readonly commands: readonly string[];
  /** What the only command does; absent: its name says it, or there are several. */
  readonly purpose?: string | undefined;
  /** null: the run's plan is gone or unreadable. */
  readonly rowsPlanned: number | null;
  /** Planned rows in committed spans. null: unknown for a damaged run. */
  readonly rowsCommitted: number | null;
  /** What became of the committed rows; null: unknown for a damaged run, and none for one that is not there. */
  readonly rowsOfRun: RowsOfRun | null;
  /** null: the run's plan is gone or unreadable. */
  readonly spansPlanned: number | null;
  /** null: unknown for a damaged run. */
  readonly spansCommitted: number | null;
  /** Everything that is wrong with the output, a line each. */
  readonly damage: readonly string[];
  /** The error that `run` would end with. */
  readonly error: JobError | undefined;
  /** The attempts that committed spans, with how many, in span order. */
  readonly attempts: readonly (CommittedBy & { readonly spans: number })[];
  /** Other runs of the job that are not finished. */
  readonly unfinished: readonly UnfinishedText[];
  /** What people read of them, a line each. */
  readonly unfinishedLines: readonly string[];
  readonly output: string;
}

const isDamage = ({ damage }: JobError): boolean => damage !== undefined;

const nothing = {
  verdict: null,
  decision: null,
  readers: [],
  commands: [],
  lastFailure: null,
  rowsPlanned: 0,
  rowsCommitted: 0,
  rowsOfRun: null,
  spansPlanned: 0,
  spansCommitted: 0,
  attempts: [],
  damage: [],
  error: undefined,
};

/**
 * Returns the state of a run from the target alone. Writes nothing.
 * @throws JobError PLAN_CHANGED if another job has made it
 * @param lookAtPaid says what an unfinished run has paid for; default: that is not read
 */
export async function runState(job: Job, sink: Sink, log: Log, lookAtPaid?: LookAtPaid): Promise<DescribedRun> {
  const { spec, base, command } = job;
  const stored = await orError(() => sink.find(base), isDamage);
  const unfinished = await unfinishedRuns(job, sink);
  const about = {
    ...nothing,
    runId: base,
    unfinished,
    unfinishedLines: unfinishedLines(job, unfinished),
    output: sink.target,
  };
  if (stored === undefined) {
    return { ...about, status: "not_planned", commands: [command(spec.params)] };
  }
  if (stored instanceof JobError) {
    return { ...about, rowsPlanned: null, spansPlanned: null, ...damagedBy(job, stored) };
  }

  const { plan, pruned } = stored;
  const planned = { ...about, runId: plan.runId, rowsPlanned: plan.input.rows, spansPlanned: spanCount(plan) };
  if (pruned !== undefined) {
    refuseElsewhere(job, sink, { plan, state: { kind: "published" } });
    return { ...planned, status: "pruned" };
  }
  const run = await orError(() => openOwn(job, sink, stored), isDamage);
  if (run instanceof JobError) {
    return { ...planned, ...damagedBy(job, run) };
  }

  const { state, spans } = run;
  const isOpen = state.kind === "unfinished" || state.kind === "approved";
  const lost = await lostSpans(job, run);
  const lastFailure = isOpen ? ((await lastFailureOf(sink, plan.runId)) ?? null) : null;
  const isPaidFor = state.kind === "unfinished" && lookAtPaid !== undefined;
  const committed = [...spans.keys()].map((index) => spanAt(plan, index));
  return {
    ...planned,
    ...(lost === undefined ? {} : { damage: [lost.message], error: spellOut(job, lost) }),
    status: isRolledBack(state) ? "rolled_back" : state.kind,
    ...(await decided(spec, sink, run)),
    ...(await toDecide(job, sink, log, run)),
    ...(isOpen && plan.erasure === undefined && lost === undefined ? continuing(job, run, lastFailure) : {}),
    paid: isPaidFor ? await paidReport(lookAtPaid, run.answers().read()) : undefined,
    lastFailure,
    spansCommitted: spans.size,
    rowsCommitted: committed.reduce((sum, { rowStart, rowEnd }) => sum + rowEnd - rowStart, 0),
    rowsOfRun: countSpans(spans),
    attempts: countByAttempt(spans),
  };
}

/** Refuses a run that was asked for if a later run of the same params came after it. @throws JobError USAGE */
export function requireLatest(latest: RunId, asked: string | undefined): void {
  if (asked !== undefined && asked !== latest) {
    throw new JobError("USAGE", `looking for run ${asked}: the latest run of these params is ${latest}`, {
      hint: "name that run, or leave out --run; infer-batch history says what became of earlier ones",
    });
  }
}

/** Errors of a run whose spec, input or model is not the planned one. */
const changes: ReadonlySet<string> = new Set(["PLAN_CHANGED", "INPUT_CHANGED", "INPUT_REWRITTEN", "MODEL_CHANGED"]);

function continuing(
  job: Job,
  { plan, state }: RunSink,
  lastFailure: AttemptFailure | null,
): Pick<DescribedRun, "commands" | "purpose"> {
  if (lastFailure !== null && changes.has(lastFailure.code)) {
    const purpose = "to continue, restore what changed; to score again with the change";
    return { commands: [newRunCommand(job, plan)], purpose };
  }
  const purpose = state.kind === "approved" ? "to publish it" : "to continue";
  return {
    commands: [job.command(plan.params)],
    purpose: lastFailure === null ? purpose : `${purpose}, after you fix the cause`,
  };
}

async function decided(
  spec: JobSpec,
  sink: Sink,
  { plan, state }: RunSink,
): Promise<Pick<DescribedRun, "verdict" | "comparison" | "decision">> {
  const { ledger } = sink;
  const isApproved = plan.staged && state.kind === "published";
  const verdict = plan.checks === null ? undefined : await ledger.read(plan.runId, verdictDocument);
  const decision = isApproved ? await ledger.read(plan.runId, decisionDocument) : undefined;
  return {
    verdict: verdict === undefined ? null : verdictReport(spec, plan, verdict),
    comparison: await ledger.read(plan.runId, comparisonDocument),
    decision: "decision" in state ? state.decision : (decision ?? null),
  };
}

async function toDecide(
  job: Job,
  sink: Sink,
  log: Log,
  { plan, state }: RunSink,
): Promise<Pick<DescribedRun, "readers" | "commands" | "purpose">> {
  const { erasure } = plan;
  if (isRolledBack(state)) {
    const { readersHave, newRun } = await rolledBackReport(job, sink, log, plan);
    return { readers: readersHave === undefined ? [] : [`readers have ${readersHave}`], commands: [newRun] };
  }
  if (erasure !== undefined && state.kind !== "published") {
    const about = `it is an erasure by ${erasure.by} of rows of run ${erasure.of}; ${eraseAgain}`;
    return { readers: [about], commands: [newRunCommand(job, plan)] };
  }
  if (state.kind !== "held" && state.kind !== "discarded") {
    return { readers: [], commands: [] };
  }
  const line = await readersLine(sink, log, plan);
  const readers = line === undefined ? [] : [line];
  if (state.kind === "discarded") {
    return { readers, commands: [againCommand(job, plan)], purpose: toScoreAgain };
  }
  const commands = decidingCommands(job, plan);
  return {
    readers: commands.newer === undefined ? readers : [...readers, commands.newer],
    commands: commandList(commands),
  };
}

function damagedBy(
  job: Job,
  error: JobError,
): Pick<DescribedRun, "status" | "damage" | "error" | "spansCommitted" | "rowsCommitted"> &
  Partial<Pick<DescribedRun, "runId">> {
  const { runId, found = [error.message] } = error.damage ?? {};
  return {
    ...(runId === undefined ? {} : { runId: runId as RunId }),
    status: "damaged",
    spansCommitted: null,
    rowsCommitted: null,
    damage: found,
    error: spellOut(job, error),
  };
}

function countByAttempt(spans: RunSink["spans"]): (CommittedBy & { spans: number })[] {
  const counted = new Map<string, CommittedBy & { spans: number }>();
  for (const [, { maker: attempt }] of [...spans].toSorted(([left], [right]) => left - right)) {
    const key = `${attempt.worker}/${attempt.workers} ${attempt.writer}`;
    counted.set(key, { ...attempt, spans: (counted.get(key)?.spans ?? 0) + 1 });
  }
  return [...counted.values()];
}

/**
 * Reads the rejected rows of the run's committed spans.
 * @param asked the id of the run that is meant; default: the latest one
 * @throws JobError USAGE if it is not the latest run of these params, or none is planned
 */
export async function* rejectedRows(job: Job, sink: Sink, asked?: string): AsyncGenerator<RejectedRow> {
  const stored = await findPlanned(job, sink, "reading the rejected rows of");
  requireLatest(stored.plan.runId, asked);
  const run = await openOwn(job, sink, stored);
  yield* run.rejects();
}

export interface History {
  /** The latest first. */
  readonly runs: readonly RecordedRun[];
  /** Whether there are more. */
  readonly more: boolean;
}

/** Returns the latest runs of the job at its target. Writes nothing. */
export async function runHistory(spec: JobSpec, sink: Sink, last: number): Promise<History> {
  const groups = groupRuns(await sink.history({ job: spec.name, last: last + 1 }));
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
  const { plan } = stored;
  const run = await openOwn(job, sink, stored);
  const { state, spans } = run;
  const reading = `reading the profiles of run ${plan.runId}`;
  if (state.kind === "discarded") {
    const found = `it was ${decisionText(state.decision, true)}; its rows are removed`;
    const shown = `${job.command(plan.params, { verb: "status" })} shows its checks`;
    const hint = `${shown}; to score again: ${newRunCommand(job, plan)}`;
    throw new JobError("DISCARDED", `${reading}: ${found}`, { hint });
  }
  if (!isWhole(run)) {
    const found = `${spans.size} of ${count(spanCount(plan), "span")} committed`;
    throw new JobError("USAGE", `${reading}: ${found}`, { hint: finishingHint(job, plan) });
  }
  const profile = runProfileOf(plan, { profile: await run.profile(), ...countSpans(spans) });
  const comparison = await sink.ledger.read(plan.runId, comparisonDocument);
  return { profile, earlier: await earlierNights(job, sink, profile), comparison, state: state.kind };
}

/** One that cannot be read is no night that is known. */
async function earlierNights({ spec, dateParam }: Job, sink: Sink, { date }: RunProfile): Promise<RunProfile[]> {
  if (dateParam === undefined || date === "") {
    return [];
  }
  const published = (await sink.published("everywhere")).filter(({ isNormal }) => isNormal);
  const nights = runsOfSeries(published, { job: spec.name, params: spec.params, dateParam, date });
  const texts = await mapBounded(nights.slice(-comparedNights), readsAtOnce, (run) => sink.readProfile(run));
  return texts.flatMap((text) => parseRunProfile(text) ?? []);
}

async function publishedStats(job: Job, sink: Sink, runId: string): Promise<RunStats | undefined> {
  const { spec, dateParam } = job;
  const published = dateParam === undefined ? [] : await sink.published("everywhere");
  const asked = published.filter((run) => run.runId === runId);
  const [found] = runsOfSeries(asked, { job: spec.name, params: spec.params, dateParam });
  const profile = found && parseRunProfile(await sink.readProfile(found));
  return profile && { profile, earlier: await earlierNights(job, sink, profile), state: "published" };
}

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
  /** The factor above which it would not have held or warned; infinite: there is none. */
  readonly passesWith: number;
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
  const profiles = await mapBounded(read, readsAtOnce, (run) => readPinnedProfile(sink, run));
  const limits = (date: string): Limits =>
    spec.checks === undefined
      ? defaultLimits
      : limitsOf(spec.checks, { staged: true, params: { ...spec.params, [dateParam]: date } });
  const nights = profiles.slice(-last).map((run) => {
    const before = profiles.filter(({ date }, index) => date < run.date && read[index]?.isNormal === true);
    return judge({ run, earlier: earlierThan(run.date, before), limits: { ...limits(run.date), onFail: "hold" } });
  });
  const { factor } = spec.checks ?? defaultLimits;
  return { factor, nights, columns: columnsOf(nights) };
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
    const passesWith = Math.max(...signs.map(({ finding }) => finding.passesWith ?? Infinity));
    return { held: held.size, warned, farthest, date, passesWith };
  });
  return columns.toSorted((left, right) => right.held - left.held || right.warned - left.warned);
}
