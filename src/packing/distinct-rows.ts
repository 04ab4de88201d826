import type { RowFault } from "./input-target.js";

/**
 * Which rows of a span go through the model, and which take the prediction of a row before them that is the same to
 * it. Rows are counted from the span's first, places from the first row that went through.
 */
export interface DistinctRows {
  /** The run's number of the span's first row. */
  readonly rowStart: number;
  readonly rowCount: number;
  /** Rows that go through the model. */
  readonly count: number;
  /** The place of each row so far. */
  readonly places: Uint32Array;
  /** The row of a place: the first of those that share it. */
  readonly firstAt: (place: number) => number;
  /** The next row goes through the model. */
  add(): void;
  /** The next row is the same as the one of a place. */
  repeat(place: number): void;
}

/** Of a span of up to `length` rows. */
export function createDistinctRows(rowStart: number, length: number): DistinctRows {
  const places = new Uint32Array(length);
  const firsts = new Uint32Array(length);
  let rowCount = 0;
  let count = 0;
  return {
    rowStart,
    get rowCount() {
      return rowCount;
    },
    get count() {
      return count;
    },
    get places() {
      return places.subarray(0, rowCount);
    },
    firstAt: (place) => firsts[place] as number,
    add() {
      firsts[count] = rowCount;
      places[rowCount] = count;
      count += 1;
      rowCount += 1;
    },
    repeat(place) {
      places[rowCount] = place;
      rowCount += 1;
    },
  };
}

type PlaceFault = Omit<RowFault, "row">;

/** Faults that come with predictions. */
export interface PlaceFaults {
  /** Of a place: told for its first row. */
  tell(place: number, fault: PlaceFault): void;
  /** All rows have come: tells those that share a place with a fault. */
  tellRepeats(): void;
}

/** `tell`: of a row, counted from the span's first. Where rows are not compared, a place is a row. */
export function createPlaceFaults(
  distinct: DistinctRows | undefined,
  tell: (at: number, fault: PlaceFault) => void,
): PlaceFaults {
  if (distinct === undefined) {
    return { tell, tellRepeats() {} };
  }
  const found = new Map<number, PlaceFault>();
  return {
    tell(place, fault) {
      if (!found.has(place)) {
        found.set(place, fault);
        tell(distinct.firstAt(place), fault);
      }
    },
    tellRepeats() {
      if (found.size > 0) {
        for (const [at, place] of distinct.places.entries()) {
          const fault = found.get(place);
          if (fault !== undefined) {
            tell(at, fault);
          }
        }
      }
    },
  };
}

/** Where the predictions of those rows are that `keep` marks with 1; undefined: where the rows are themselves. */
export function placesOf(distinct: DistinctRows, keep: Uint8Array): Uint32Array | undefined {
  const { places } = distinct;
  if (distinct.count === places.length) {
    return undefined;
  }
  const kept = new Uint32Array(places.length);
  let count = 0;
  for (let at = 0; at < places.length; at += 1) {
    if (keep[at] === 1) {
      kept[count] = places[at] as number;
      count += 1;
    }
  }
  return kept.subarray(0, count);
}

/** Of the rows that `keep` marks with 1, those that took another's prediction. */
export function repeatsOf(distinct: DistinctRows, keep: Uint8Array): number {
  const { places } = distinct;
  let repeats = 0;
  for (let at = 0; at < places.length; at += 1) {
    repeats += keep[at] === 1 && distinct.firstAt(places[at] as number) !== at ? 1 : 0;
  }
  return repeats;
}
