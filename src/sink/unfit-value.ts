/** A value that the target cannot hold. */
export interface UnfitValue {
  /** Index of the row among those passed to `RunWriter.unfit`. */
  readonly row: number;
  readonly column: string;
  /** What is wrong with the value. */
  readonly found: string;
}
