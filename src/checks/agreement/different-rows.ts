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
  /** Values that tell whose row it is, by column; undefined: they are not known here. */
  readonly keys?: Readonly<Record<string, string>> | undefined;
}

/** The number of rows that are collected for each column. */
const keptRows = 10;

/** Collects the rows that differ most. If rows differ equally, the one with the lower number comes first. */
export function createDifferentRows(): {
  /** Whether the row is one of those that differ most so far. */
  takes(row: number, distance: number): boolean;
  add(row: DifferentRow): void;
  readonly rows: readonly DifferentRow[];
} {
  let rows: DifferentRow[] = [];
  /** The least distance that a row needs, unless its number is low. */
  let least = 0;
  return {
    takes(row, distance) {
      return distance > least || (distance === least && distance > 0 && isBefore({ row, distance }, rows.at(-1)));
    },
    add(row) {
      rows = mostDifferent([...rows, row]);
      least = rows.length < keptRows ? 0 : (rows.at(-1)?.distance ?? 0);
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

function isBefore(one: Place, other: Place | undefined): boolean {
  return (
    other === undefined || one.distance > other.distance || (one.distance === other.distance && one.row < other.row)
  );
}
