import type { LeftOutRun, OlderModel, PinnedRun, Plan } from "../plan/plan.js";
import { byChecks } from "./decision.js";
import { isCalendarDate, sameParams, sameSeries } from "../plan/identity.js";

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

/** A published run whose rows readers find in a target. */
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

/** The runs that a run is compared with, and those that it is not compared with. */
interface ChosenRuns {
  readonly baseline: PinnedRun[];
  /** Absent: there are none. */
  readonly leftOut?: LeftOutRun[];
  /** Absent: the model is that of the last run, or no earlier run had it. */
  readonly olderModel?: OlderModel;
}

/**
 * Chooses what a run is compared with: the latest runs of its series, sorted by date. Names the runs among the latest ones
 * that are left out, and says if the model is that of an earlier run, but not of the last one.
 */
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

/** What a plan keeps of a published run. */
export function pinOf({ runId, date, sha256, place }: PinnedRun): PinnedRun {
  return { runId, date, sha256, place };
}
