import { logicalDateOf, type PublishedRun, type VisibleRun } from "./published-run.js";
import { assertNever } from "../util/errors.js";
import { sameSeries, splitRunId } from "../plan/identity.js";
import type { Plan, PlanTarget, RunId } from "../plan/plan.js";

/** What a rollback did to the table of a target. */
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

/**
 * What the rows of a run take the place of: nothing; rows with equal keys; all rows of the table; or the rows of runs with
 * the same params, which are in a place of their own.
 */
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
  /**
   * The run whose rows are where those of the held run would be; in a table that keeps the rows of earlier runs, the run
   * that was published last. undefined: there is none.
   */
  readonly run: VisibleRun | undefined;
  /** Set if a table keeps the rows of earlier runs (`append`, `upsert`). */
  readonly kept?: {
    /** The last published run of the same params that has rows; undefined: there is none. */
    readonly own: VisibleRun | undefined;
  };
  /**
   * If each date has a folder of its own: the latest date that is published in another one; undefined: there is none, or
   * it was not looked for.
   */
  readonly latest?: string | undefined;
}

/**
 * Finds whose rows readers find where those of a plan go: those of the run that was published last. In a table that keeps
 * the rows of earlier runs, it is the last run of the plan's series.
 * @param published the runs that were published there, in this order
 */
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

/**
 * Says in a sentence without its full stop what readers have while a run is held. `show`: how a date is written; default:
 * "2026-11-21".
 */
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
