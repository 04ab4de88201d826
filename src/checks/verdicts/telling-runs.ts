/** How many rows of an earlier run are of some kind, such as a class; or of several runs together. */
export interface CountedRows {
  /** null: of several runs. */
  readonly runId: string | null;
  readonly runs: number;
  readonly rows: number;
  readonly all: number;
}

/** Where so many rows are due, a run without any is rarer than one in a hundred: e^-5. With fewer, chance may leave them out. */
export const leastTelling = 5;

/**
 * Leaves out the earlier runs that have too few rows to show something. Together they count as one run, if that can show it:
 * many nights with few rows may say what none of them can say.
 */
export function tellingRuns(runs: readonly CountedRows[], tells: (run: CountedRows) => boolean): CountedRows[] {
  const telling = runs.filter(tells);
  const few = runs.filter((run) => !tells(run));
  const together = sumOf(few);
  return few.length > 1 && tells(together) ? [...telling, together] : telling;
}

/** The share of the rows of all runs together. */
export function shareOfAll(runs: readonly CountedRows[]): number {
  return shareOf(sumOf(runs));
}

export function shareOf({ rows, all }: CountedRows): number {
  return rows / Math.max(all, 1);
}

function sumOf(counted: readonly CountedRows[]): CountedRows {
  let [runs, rows, all] = [0, 0, 0];
  for (const run of counted) {
    runs += run.runs;
    rows += run.rows;
    all += run.all;
  }
  return { runId: null, runs, rows, all };
}

/** For the numbers of a result that compares with several runs. */
export function togetherOf({ runId, runs }: CountedRows): { readonly runs_together?: number } {
  return runId === null ? { runs_together: runs } : {};
}

/** Ends a formula. */
export const togetherText = "the runs with fewer rows count as one run together, if that has as many";
