import { randomNumbers } from "../../util/sampling.js";

/** Draws rows of a table at random, each at most once, and each of those that are left with the same chance. */
export interface RowDraw {
  /** All rows that were drawn, in the order of the draw. */
  readonly rows: readonly number[];
  /** Draws further rows, and returns them: fewer where the table has no more. */
  more(count: number): readonly number[];
}

/** @param all the number of rows of the table @param seed the same one draws the same rows */
export function drawRows(all: number, seed: number): RowDraw {
  const random = randomNumbers(seed);
  const rows: number[] = [];
  // A shuffle (Fisher and Yates) that stores only the places that were swapped: a table may have 100 million rows.
  const swapped = new Map<number, number>();
  return {
    rows,
    more(count) {
      const from = rows.length;
      for (let at = from; at < Math.min(all, from + count); at += 1) {
        const other = at + Math.floor(random() * (all - at));
        rows.push(swapped.get(other) ?? other);
        swapped.set(other, swapped.get(at) ?? at);
      }
      return rows.slice(from);
    },
  };
}
