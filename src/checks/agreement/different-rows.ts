/** A row for which two models predict different values. */
export interface DifferentRow {
  /** The number of the row. */
  readonly row: number;
  /**
   * The absolute difference of two numbers; 1 for two labels; 1 minus the cosine of two vectors. Infinity: only one of
   * the two predictions is a number, or has a direction.
   */
  readonly distance: number;
  /** Both predictions, as a reader sees them. */
  readonly one: string;
  readonly other: string;
}

/** The number of rows that are collected for each column. */
const keptRows = 10;

/** Collects the rows that differ most. If rows differ equally, the one with the lower number comes first. */
export function createDifferentRows(): {
  add(row: number, distance: number, texts: () => Pick<DifferentRow, "one" | "other">): void;
  readonly rows: readonly DifferentRow[];
} {
  let rows: DifferentRow[] = [];
  return {
    add(row, distance, texts) {
      const last = rows.at(-1);
      const isFull = last !== undefined && rows.length >= keptRows;
      if (distance > 0 && (!isFull || isBefore({ row, distance }, last))) {
        rows = mostDifferent([...rows, { row, distance, ...texts() }]);
      }
    },
    get rows() {
      return rows;
    },
  };
}

/** Returns the rows that differ most, in that order. */
export function mostDifferent(rows: readonly DifferentRow[]): DifferentRow[] {
  return rows.toSorted((one, other) => (isBefore(one, other) ? -1 : 1)).slice(0, keptRows);
}

type Place = Pick<DifferentRow, "row" | "distance">;

function isBefore(one: Place, other: Place): boolean {
  return one.distance > other.distance || (one.distance === other.distance && one.row < other.row);
}
