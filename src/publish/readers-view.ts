import { logicalDateOf } from "./published-run.js";
import type { Plan } from "../plan/plan.js";

/** A published run whose rows readers find in a target. */
export interface VisibleRun {
  readonly runId: string;
  /** null: unknown. */
  readonly params: Plan["params"] | null;
}

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
  const date = params === null ? undefined : logicalDateOf({ params, dateParam });
  return `run ${runId}${date === undefined ? "" : ` of ${date}`}`;
}

/** What readers have while a run is held. */
export interface ReadersView {
  /** The run whose rows are where those of the held run would be; undefined: there is none. */
  readonly run: VisibleRun | undefined;
  /**
   * If each date has a folder of its own: the latest date that is published in another one; undefined: there is none, or
   * it was not looked for.
   */
  readonly latest?: string | undefined;
}

/**
 * Says in a sentence without its full stop what readers have while a run is held. `show`: how a date is written; default:
 * "2026-11-21".
 */
export function readersText(
  { run, latest }: ReadersView,
  held: Pick<Plan, "params" | "dateParam">,
  show: (date: string) => string = (date) => date,
): string {
  const date = logicalDateOf(held);
  if (run !== undefined) {
    const { runId, params } = run;
    const of = params === null ? undefined : logicalDateOf({ params, dateParam: held.dateParam });
    return of !== undefined && of !== date
      ? `readers still have the run of ${show(of)}`
      : `readers still have run ${runId}${of === undefined ? "" : ` of ${show(of)}`}`;
  }
  if (date === undefined) {
    return "nothing of this run is published";
  }
  return latest === undefined
    ? `readers have nothing of ${show(date)}`
    : `readers still have the run of ${show(latest)}, and nothing of ${show(date)}`;
}
