/** What became of the rows of a run that are committed. Those that were erased are none of these. */
export interface RowsOfRun {
  /** Rows in the output. */
  readonly output: number;
  readonly rejected: number;
  /** Rows that `input.where` left out. */
  readonly filtered: number;
}
