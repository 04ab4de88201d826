import type { LeftOutRun, OlderModel, PinnedRun, Plan } from "../plan/plan.js";
import { byChecks } from "./decision.js";
import { isCalendarDate, sameParams, sameSeries } from "../plan/series.js";

type Params = Readonly<Record<string, string>>;

/** The runs of a job for one target whose params differ in dates only. */
export interface Series {
  readonly job: string;
  readonly params: Params;
  /** The param whose value is the logical date; undefined: only the run of the very same params is found, with no date. */
  readonly dateParam: string | undefined;
  /** The logical date of the run that asks: only earlier runs are found. Default: runs of any date. */
  readonly date?: string;
  /** Also find runs that later runs are not compared with: a person approved them with --not-normal, or they were expected to differ. */
  readonly everyRun?: boolean;
  /** Also find those runs, in addition to the others of their dates, and mark them. */
  readonly withLeftOut?: boolean;
  /** Also find how long each run was scored. */
  readonly withSeconds?: boolean;
}

/** A published run whose profile is stored. */
export interface PublishedRun extends PinnedRun {
  readonly modelSha256: string;
  /** Why later runs are not compared with it; undefined: they are, or it was not asked for. */
  readonly leftOut?: LeftOutRun["why"] | undefined;
  /** How long it was scored; undefined: it is not known, or was not asked for. */
  readonly seconds?: number | undefined;
}

/** The logical date of a run, "2026-11-23"; undefined: it has none. */
export function logicalDateOf({ params, dateParam }: Pick<Plan, "params" | "dateParam">): string | undefined {
  const given = dateParam === null ? undefined : params[dateParam];
  return given !== undefined && isCalendarDate(given) ? given : undefined;
}

/** The logical date of a run of this job if the run belongs to the series and is early enough; else undefined. */
export function earlierDateIn(
  series: Series,
  run: { readonly job: string; readonly params: Params },
): string | undefined {
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

/** Why later runs are not compared with a run that was published without being a baseline. @param by who decided */
export function whyLeftOut(by: string | undefined): LeftOutRun["why"] {
  return by === byChecks ? "expected" : "approved";
}

/** The runs that checks compare with, and as many before these, which tell of a slow drift. */
const mostRuns = 63;
/** Runs among which those are named that are not compared with. */
const namedRuns = 8;

/**
 * Sorts runs by date, and of each date keeps the last: several have one date where another param is a time. Those that
 * later runs are not compared with are kept beside them.
 */
export function lastOfEachDate(found: readonly PublishedRun[]): PublishedRun[] {
  const byDate = new Map(found.map((run) => [`${run.date} ${run.leftOut ?? ""}`, run]));
  return [...byDate.values()].toSorted((one, other) => (one.date < other.date ? -1 : one.date > other.date ? 1 : 0));
}

/** The runs that a run is compared with, and those that it is not compared with. */
interface ChosenRuns {
  readonly baseline: PinnedRun[];
  /** Absent: there are none. */
  readonly leftOut?: LeftOutRun[];
  /** Absent: the model is that of the last run, or no earlier run had it. */
  readonly olderModel?: OlderModel;
}

/**
 * Chooses what a run is compared with: of each date the last run, and of these the latest. Names the runs among the latest
 * ones that are left out, and says if the model is that of an earlier run, but not of the last one.
 */
export function chooseBaseline(
  found: readonly PublishedRun[],
  { modelSha256 }: { readonly modelSha256: string },
): ChosenRuns {
  const all = lastOfEachDate(found);
  const sorted = all.filter(({ leftOut }) => leftOut === undefined);
  const leftOut = all
    .slice(-namedRuns)
    .flatMap(({ runId, date: of, leftOut: why }) => (why ? [{ runId, date: of, why }] : []));
  const usedOn = all.findLast((run) => run.modelSha256 === modelSha256)?.date;
  const last = all.at(-1);
  return {
    baseline: sorted.slice(-mostRuns).map(pinOf),
    ...(leftOut.length === 0 ? {} : { leftOut }),
    ...(last !== undefined && last.modelSha256 !== modelSha256 && usedOn !== undefined
      ? { olderModel: { usedOn, last: { date: last.date, modelSha256: last.modelSha256 } } }
      : {}),
  };
}

/** What a plan keeps of a published run. */
export function pinOf({ runId, date, sha256, place }: PublishedRun): PinnedRun {
  return { runId, date, sha256, place };
}
