/** How many rows of an earlier run, or of several pooled runs, are of some kind, such as a class. */
export interface CountedRows {
  /** null: several runs are pooled. */
  readonly runId: string | null;
  /** How many runs are counted. */
  readonly runs: number;
  /** The rows of that kind. */
  readonly rows: number;
  /** All rows. */
  readonly all: number;
}

/** If so many rows are expected, a run has none of them less than once in a hundred times (e^-5). */
export const leastExpected = 5;

/**
 * Returns the earlier runs that have enough rows for a check. The others are pooled into one run, which counts if it has enough
 * rows: many small runs may show what none of them shows alone.
 */
export function informativeRuns(
  runs: readonly CountedRows[],
  isInformative: (run: CountedRows) => boolean,
): CountedRows[] {
  const informative = runs.filter(isInformative);
  const few = runs.filter((run) => !isInformative(run));
  const pooled = sumOf(few);
  return few.length > 1 && isInformative(pooled) ? [...informative, pooled] : informative;
}

/** The share of the rows in all runs, pooled. */
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

/** The number of pooled runs, for the numbers of a result; nothing for a single run. */
export function pooledNumbers({ runId, runs }: CountedRows): { readonly runs_together?: number } {
  return runId === null ? { runs_together: runs } : {};
}

/** The last part of a formula: how small runs are pooled. */
export const pooledText = "the runs with fewer rows count as one run together, if that has as many";
