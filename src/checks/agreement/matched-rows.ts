/** How the rows of two tables match by their keys. A is the earlier table. */
export interface MatchedRows {
  readonly rowsA: number;
  readonly rowsB: number;
  /** The number of rows whose key is in one table only. */
  readonly onlyA: number;
  readonly onlyB: number;
  /** The number of keys that are once in each table. Their rows are compared. */
  readonly matched: number;
  /** The number of keys that are several times in a table, and of those that are not as often in the other one. */
  readonly repeated: number;
  readonly uneven: number;
  /** Some repeated keys with their numbers of rows. */
  readonly examples: readonly { readonly key: string; readonly a: number; readonly b: number }[];
}

/** Which rows are joined, and when two values count as equal. */
export interface JoinRequest {
  readonly key: readonly string[];
  readonly columns: readonly string[];
  /** The largest difference of two floating-point numbers that count as equal. */
  readonly tolerance: number;
}
