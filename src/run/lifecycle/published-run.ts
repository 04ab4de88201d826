import type {
  LeftOutRun,
  OlderModel,
  PinnedRun,
  Plan,
  PlanTarget,
  PlannedChecks,
  PlannedModel,
  RunId,
} from "../plan/plan.js";
import { isCalendarDate, sameParams, sameSeries, shortDigest, splitRunId } from "../plan/identity.js";
import { byChecks } from "./lifecycle.js";
import { assertNever } from "../../base/errors.js";

type Params = Readonly<Record<string, string>>;

/** The runs of a job for one target whose params differ in dates only. */
export interface Series {
  readonly job: string;
  readonly params: Params;
  /** The param whose value is the logical date; undefined: only the runs of the very same params belong to it, with no date. */
  readonly dateParam: string | undefined;
  /** The logical date of the run that asks: only earlier runs are found. Default: runs of any date. */
  readonly date?: string;
}

export interface VisibleRun {
  readonly runId: string;
  /** null: unknown. */
  readonly params: Plan["params"] | null;
  /** Whether it was published without rows. Default: it was not, or it is not known. */
  readonly isEmpty?: boolean;
}

/** A published run. What takes more than a target knows of all of them is read when it is asked for. */
export interface PublishedRun extends VisibleRun {
  /** null: unknown. */
  readonly job: string | null;
  /** Digest and place of its profile, as a plan pins them; undefined: it is stored no more. */
  readonly profile: Pick<PinnedRun, "sha256" | "place"> | undefined;
  readonly modelSha256: string;
  /** Whether later runs are compared with it: no person approved it with --not-normal, and it was not expected to differ. */
  readonly isNormal: boolean;
  /** Reads who decided on it; undefined: it is not known. */
  decidedBy(): Promise<string | undefined>;
  /** Reads how long it was scored; null: it is not known. */
  seconds(): Promise<number | null>;
}

/** A published run of a series, whose profile is stored. */
export type DatedRun = PublishedRun & PinnedRun;

/** The logical date of a run, "2026-11-23"; undefined: it has none. */
export function logicalDateOf({ params, dateParam }: Pick<Plan, "params" | "dateParam">): string | undefined {
  const given = dateParam === null ? undefined : params[dateParam];
  return given !== undefined && isCalendarDate(given) ? given : undefined;
}

/** The date by which checks compare a run: the logical one, or of a run of a chain the day when it was planned. */
export function comparedDateOf(plan: Pick<Plan, "params" | "dateParam" | "checks">): string | undefined {
  return logicalDateOf(plan) ?? plan.checks?.day?.date;
}

/** The logical date of a run of this job if the run belongs to the series and is early enough; else undefined. */
function earlierDateIn(series: Series, run: { readonly job: string; readonly params: Params }): string | undefined {
  if (series.dateParam === undefined) {
    return run.job === series.job && sameParams(run.params, series.params) ? "" : undefined;
  }
  const date = run.params[series.dateParam];
  return run.job === series.job &&
    date !== undefined &&
    isCalendarDate(date) &&
    (series.date === undefined || date < series.date) &&
    sameSeries(run.params, series.params)
    ? date
    : undefined;
}

/** The runs that checks compare with, and as many before these, which tell of a slow drift. */
const mostRuns = 63;
/** Runs among which those are named that are not compared with. */
const namedRuns = 8;

/** The runs of a series, sorted by date. Of each date it is the last: several have one date where another param is a time. */
export function runsOfSeries(published: readonly PublishedRun[], series: Series): DatedRun[] {
  const byDate = new Map<string, DatedRun>();
  for (const run of published) {
    const { job, params, profile } = run;
    const date = job === null || params === null ? undefined : earlierDateIn(series, { job, params });
    if (date !== undefined && profile !== undefined) {
      byDate.set(date, { ...run, ...profile, date });
    }
  }
  return sortedByDate([...byDate.values()]);
}

/** The runs of a series that later runs are compared with, as `runsOfSeries` returns them, and beside them the others. */
export function normalAndOthers(published: readonly PublishedRun[], series: Series): DatedRun[] {
  const normal = runsOfSeries(
    published.filter(({ isNormal }) => isNormal),
    series,
  );
  const others = runsOfSeries(
    published.filter(({ isNormal }) => !isNormal),
    series,
  );
  return sortedByDate([...normal, ...others]);
}

function sortedByDate(runs: readonly DatedRun[]): DatedRun[] {
  return runs.toSorted((left, right) => (left.date < right.date ? -1 : left.date > right.date ? 1 : 0));
}

interface ChosenRuns {
  readonly baseline: PinnedRun[];
  /** Absent: there are none. */
  readonly leftOut?: LeftOutRun[];
  /** Absent: the model is that of the last run, or no earlier run had it. */
  readonly olderModel?: OlderModel;
}

/** The latest runs of the series, by date; with those left out, and whether an earlier run's model is back. */
export async function chooseBaseline(
  runs: readonly DatedRun[],
  { modelSha256 }: { readonly modelSha256: string },
): Promise<ChosenRuns> {
  const normal = runs.filter(({ isNormal }) => isNormal);
  const others = runs.slice(-namedRuns).filter(({ isNormal }) => !isNormal);
  const leftOut = await Promise.all(
    others.map(async (run): Promise<LeftOutRun> => {
      const { runId, date } = run;
      return { runId, date, why: (await run.decidedBy()) === byChecks ? "expected" : "approved" };
    }),
  );
  const usedOn = runs.findLast((run) => run.modelSha256 === modelSha256)?.date;
  const last = runs.at(-1);
  return {
    baseline: normal.slice(-mostRuns).map(pinOf),
    ...(leftOut.length === 0 ? {} : { leftOut }),
    ...(last !== undefined && last.modelSha256 !== modelSha256 && usedOn !== undefined
      ? { olderModel: { usedOn, last: { date: last.date, modelSha256: last.modelSha256 } } }
      : {}),
  };
}

export function pinOf({ runId, date, sha256, place }: PinnedRun): PinnedRun {
  return { runId, date, sha256, place };
}

export interface RolledBack {
  /** The table that keeps the rows which were rolled back. */
  readonly kept: string;
  readonly undone: VisibleRun;
  /** The run whose rows are back; undefined: rows that no run wrote. */
  readonly restored: VisibleRun | undefined;
}

/** Names a run and its logical date: "run daily-0123456789ab of 2026-11-21". */
export function runOfDate({ runId, params }: VisibleRun, dateParam: string | null): string {
  const date = dateOf({ runId, params }, { dateParam });
  return `run ${runId}${date === undefined ? "" : ` of ${date}`}`;
}

/** Nothing; rows with equal keys; all rows of the table; or those of the same params, in a place of their own. */
export function replacedBy({ mode }: PlanTarget): "nothing" | "equal keys" | "all" | "own" {
  switch (mode) {
    case "append":
      return "nothing";
    case "upsert":
      return "equal keys";
    case "replace":
      return "all";
    default:
      return "own";
  }
}

/** What readers have while a run is held. */
export interface ReadersView {
  /** In a table that keeps earlier rows, the run published last. undefined: there is none. */
  readonly run: VisibleRun | undefined;
  /** Set if a table keeps the rows of earlier runs (`append`, `upsert`). */
  readonly kept?: {
    /** The last published run of the same params that has rows; undefined: there is none. */
    readonly own: VisibleRun | undefined;
  };
  /** If each date has its own folder: the latest other published date; undefined: none, or not looked for. */
  readonly latest?: string | undefined;
}

/** In a table that keeps earlier runs' rows, the last of the plan's series. @param published in order of publication */
export function readersView(published: readonly PublishedRun[], { runId, target, job, params }: Plan): ReadersView {
  const { base } = splitRunId(runId);
  const own = published.findLast((run) => splitRunId(run.runId as RunId).base === base);
  const replaced = replacedBy(target);
  switch (replaced) {
    case "all":
      return { run: published.at(-1) };
    case "own":
      return { run: own };
    case "nothing":
    case "equal keys":
      return {
        run: published.findLast((run) => run.job === job && run.params !== null && sameSeries(run.params, params)),
        kept: { own: own?.isEmpty === true ? undefined : own },
      };
    default:
      return assertNever(replaced);
  }
}

/** A sentence without its full stop. `show`: how a date is written; default: "2026-11-21". */
export function readersText(
  view: ReadersView,
  held: Pick<Plan, "params" | "dateParam">,
  show: (date: string) => string = (date) => date,
): string {
  const { run, latest, kept } = view;
  if (kept !== undefined) {
    return keptText({ run, own: kept.own }, held, show);
  }
  const date = logicalDateOf(held);
  if (run !== undefined) {
    const of = dateOf(run, held);
    return of !== undefined && of !== date
      ? `readers still have the run of ${show(of)}${emptyText(run)}`
      : `readers still have run ${run.runId}${of === undefined ? "" : ` of ${show(of)}`}${emptyText(run)}`;
  }
  if (date === undefined) {
    return "nothing of this run is published";
  }
  return latest === undefined
    ? `readers have nothing of ${show(date)}`
    : `readers still have the run of ${show(latest)}, and nothing of ${show(date)}`;
}

/** What is in a table that keeps the rows of earlier runs: those of the last run, and those of the held run's own params. */
function keptText(
  { run, own }: { readonly run: VisibleRun | undefined; readonly own: VisibleRun | undefined },
  held: Pick<Plan, "params" | "dateParam">,
  show: (date: string) => string,
): string {
  const date = logicalDateOf(held);
  const has =
    own === undefined
      ? `the table has nothing of ${date === undefined ? "this run" : show(date)}`
      : `the table still has run ${own.runId}${date === undefined ? "" : ` of ${show(date)}`}`;
  if (run === undefined || run.runId === own?.runId) {
    return has;
  }
  const of = dateOf(run, held);
  return `${has}; the last published run is ${of === undefined ? run.runId : `that of ${show(of)}`}${emptyText(run)}`;
}

function dateOf({ params }: VisibleRun, { dateParam }: Pick<Plan, "dateParam">): string | undefined {
  return params === null ? undefined : logicalDateOf({ params, dateParam });
}

function emptyText({ isEmpty = false }: VisibleRun): string {
  return isEmpty ? ", which has no rows" : "";
}

/** Says why a run is compared with no earlier run, or that its day is; undefined: it has no checks, or is compared itself. */
export function notComparedText(plan: Pick<Plan, "checks" | "dateParam" | "params" | "input">): string | undefined {
  const { checks } = plan;
  if (checks === null || checks.profile !== undefined || checks.baseline.length > 0) {
    return undefined;
  }
  const { day } = checks;
  if (day !== undefined && day.earlier.length > 0) {
    return `compared: all rows of ${day.date} so far, with those of earlier days until the same time`;
  }
  const ofChain = "no run of an earlier day counts as normal, or one of this day was approved";
  const why = plan.input.changes === undefined ? whyNotCompared(plan) : ofChain;
  return `compared with no earlier run: ${why}`;
}

export function whyNotCompared(plan: Pick<Plan, "dateParam" | "params">): string {
  const { dateParam, params } = plan;
  if (dateParam === null) {
    return "no param is a date, so runs have no order; add one to the spec: ds: { type: date }, or ds: ${today}";
  }
  return logicalDateOf(plan) === undefined
    ? `param ${dateParam} is ${params[dateParam] ?? ""}, not a date such as 2026-11-23`
    : "no run for an earlier date is published and counts as normal";
}

/** Runs that a line names one by one; of more, it has the first and the last date. */
const namedDates = 3;

/** Says which of the latest published runs a run is not compared with, and why; undefined: there are none. */
export function leftOutText({ leftOut = [] }: Pick<PlannedChecks, "leftOut">): string | undefined {
  const texts = (["approved", "expected"] as const).flatMap((why) => {
    const dates = leftOut.filter((run) => run.why === why).map(({ date }) => date);
    const many = dates.length > namedDates ? `${dates.length} runs ` : "";
    return dates.length === 0 ? [] : [`${many}${datesText(dates)}: ${reasons[why]}`];
  });
  return texts.length === 0 ? undefined : `not compared with ${texts.join("; nor with ")}`;
}

const reasons = { approved: "approved as not normal", expected: "expected to differ" };

type NamedModel = Pick<PlannedModel, "uri" | "sha256" | "version">;

export function nameWithVersion({ uri, version }: NamedModel): string {
  return version === undefined ? uri : `version ${version} of ${uri}`;
}

/** Says that a model is not that of the last run, but one that an earlier run had; undefined: it is not so. */
export function olderModelText(
  model: NamedModel,
  { olderModel }: Pick<PlannedChecks, "olderModel">,
): string | undefined {
  if (olderModel === undefined) {
    return undefined;
  }
  const { usedOn, last } = olderModel;
  return `the model is not that of the last run: ${nameWithVersion(model)} has sha256 ${shortDigest(model.sha256)}, that run (${last.date}) had ${shortDigest(last.modelSha256)}; it was last used on ${usedOn}`;
}

/** Dates in a few words: "2026-11-20 and 2026-11-21"; of many, "from 2026-11-20 to 2026-11-25". */
export function datesText(dates: readonly string[]): string {
  const last = dates.at(-1) ?? "";
  return dates.length > namedDates
    ? `from ${dates[0]} to ${last}`
    : [dates.slice(0, -1).join(", "), last].filter((text) => text !== "").join(" and ");
}
