import type { Plan } from "../plan/plan.js";

/** What became of the rows of a run that are committed. */
export interface RowsOfRun {
  /** Rows in the output. */
  readonly output: number;
  readonly rejected: number;
  /** Rows that `input.where` left out. */
  readonly filtered: number;
  /**
   * Rows that a run of rejects left as an earlier run has made them: those that are in the table, and those that
   * `input.where` left out. undefined: the run has all rows of its input.
   */
  readonly unchanged?: number | undefined;
}

/**
 * Whether a run scores only the rejects of an earlier one, and leaves all other rows as they are at the target, which
 * counts them as filtered out.
 */
export function leavesRows({ rejectsOf }: Pick<Plan, "rejectsOf">): boolean {
  return rejectsOf?.kept === "in_table";
}
