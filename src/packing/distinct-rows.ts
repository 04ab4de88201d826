import type { RowFault } from "./input-target.js";

/**
 * Which rows of a span go through the model, which take the prediction of a row before them that is the same to it, and
 * which take one that an earlier run stored. Rows are counted from the span's first, indices from the first row that went
 * through; those of stored predictions follow from `storedFrom` on.
 */
export interface DistinctRows {
  /** The run's number of the span's first row. */
  readonly rowStart: number;
  readonly rowCount: number;
  /** Rows that go through the model. */
  readonly count: number;
  /** For each row so far, the distinct index of the row whose prediction it takes. */
  readonly indices: Uint32Array;
  /** The first of the rows that share a distinct index. */
  readonly firstAt: (distinctIndex: number) => number;
  /** The next row goes through the model. */
  add(): void;
  /** The next row is the same as the one of that distinct index. */
  repeat(distinctIndex: number): void;
  /** Rows that take stored predictions. */
  readonly storedCount: number;
  /** The next row takes the next stored prediction. */
  takeStored(): void;
}

/** The index of the first stored prediction: more rows than a span has, and a number that V8 keeps as an integer. */
const storedFrom = 2 ** 30;

/** @param length rows of the span, at most */
export function createDistinctRows(rowStart: number, length: number): DistinctRows {
  const indices = new Uint32Array(length);
  const firsts = new Uint32Array(length);
  let rowCount = 0;
  let count = 0;
  let storedCount = 0;
  return {
    rowStart,
    get rowCount() {
      return rowCount;
    },
    get count() {
      return count;
    },
    get indices() {
      return indices.subarray(0, rowCount);
    },
    firstAt: (distinctIndex) => firsts[distinctIndex] as number,
    add() {
      firsts[count] = rowCount;
      indices[rowCount] = count;
      count += 1;
      rowCount += 1;
    },
    repeat(distinctIndex) {
      indices[rowCount] = distinctIndex;
      rowCount += 1;
    },
    get storedCount() {
      return storedCount;
    },
    takeStored() {
      indices[rowCount] = storedFrom + storedCount;
      storedCount += 1;
      rowCount += 1;
    },
  };
}

type DistinctFault = Omit<RowFault, "row">;

/** Faults that come with predictions. */
export interface DistinctFaults {
  /** A fault of a distinct index, which is reported for its first row. */
  report(distinctIndex: number, fault: DistinctFault): void;
  /** Reports the faults of rows that share a distinct index with a bad row. Called when all rows have come. */
  reportRepeats(): void;
}

/**
 * Collects the faults of distinct rows.
 * @param report called with a row, counted from the span's first. If rows are not compared, a distinct index is a row
 */
export function createDistinctFaults(
  distinct: DistinctRows | undefined,
  report: (at: number, fault: DistinctFault) => void,
): DistinctFaults {
  if (distinct === undefined) {
    return { report, reportRepeats() {} };
  }
  const found = new Map<number, DistinctFault>();
  return {
    report(distinctIndex, fault) {
      if (!found.has(distinctIndex)) {
        found.set(distinctIndex, fault);
        report(distinct.firstAt(distinctIndex), fault);
      }
    },
    reportRepeats() {
      if (found.size > 0) {
        for (const [at, distinctIndex] of distinct.indices.entries()) {
          const fault = found.get(distinctIndex);
          if (fault !== undefined) {
            report(at, fault);
          }
        }
      }
    },
  };
}

/**
 * Where the predictions of the rows that `keep` marks with 1 are, in a column of those of all distinct indices, followed by
 * the stored ones; undefined: at the rows' own indices.
 */
export function indicesOf(distinct: DistinctRows, keep: Uint8Array): Uint32Array | undefined {
  const { indices, count: scored } = distinct;
  if (scored === indices.length) {
    return undefined;
  }
  const kept = new Uint32Array(indices.length);
  let count = 0;
  for (let at = 0; at < indices.length; at += 1) {
    if (keep[at] === 1) {
      const index = indices[at] as number;
      kept[count] = index < storedFrom ? index : scored + (index - storedFrom);
      count += 1;
    }
  }
  return kept.subarray(0, count);
}

/** How many of the rows that `keep` marks with 1 take the prediction of another row, and how many a stored one. */
export function takenFrom(distinct: DistinctRows, keep: Uint8Array): { repeated: number; reused: number } {
  const { indices } = distinct;
  let [repeated, reused] = [0, 0];
  for (let at = 0; at < indices.length; at += 1) {
    const index = indices[at] as number;
    if (keep[at] === 1 && index >= storedFrom) {
      reused += 1;
    } else if (keep[at] === 1 && distinct.firstAt(index) !== at) {
      repeated += 1;
    }
  }
  return { repeated, reused };
}
