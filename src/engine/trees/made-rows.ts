import type { Ensemble } from "./ensemble.js";
import { neighbourOf } from "./float-neighbours.js";
import type { Floats } from "./scorer.js";

/** Values that models seldom meet and comparisons treat in their own ways. */
const rare = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0, -0];

/**
 * Rows made of what an ensemble compares with: each threshold, the numbers next to it, NaN, infinities and both zeros.
 * Each value stands in some row; which ones stand together is drawn, the same each time.
 * @param most rows at most, drawn where there are more
 */
export function makeRows(
  { nodes }: Pick<Ensemble, "nodes">,
  { width, isDouble, most }: { readonly width: number; readonly isDouble: boolean; readonly most: number },
): Floats {
  const values = Array.from({ length: width }, () => new Set<number>(rare));
  for (const [node, mode] of nodes.modes.entries()) {
    if (mode !== "LEAF") {
      const own = values[nodes.features[node] ?? 0];
      for (const threshold of nodes.members.get(node) ?? [nodes.thresholds[node] ?? 0]) {
        own?.add(threshold);
        if (Number.isFinite(threshold)) {
          own?.add(neighbourOf(threshold, 1, isDouble)).add(neighbourOf(threshold, -1, isDouble));
        }
      }
    }
  }
  const draw = numbersFrom(1);
  const lists = values.map((set) => shuffled([...set], draw));
  const longest = lists.reduce((length, list) => Math.max(length, list.length), 1);
  const rows = Math.max(1, Math.min(most, Math.max(longest, fewestRows)));
  const made = isDouble ? new Float64Array(rows * width) : new Float32Array(rows * width);
  for (const [feature, list] of lists.entries()) {
    for (let row = 0; row < rows; row += 1) {
      // Once each value was there, they are drawn: rows of few NaN reach leaves that others do not.
      const place = row < list.length ? row : Math.floor(draw() * list.length);
      made[row * width + feature] = list[place] ?? 0;
    }
  }
  return made;
}

const fewestRows = 256;

function shuffled(list: number[], draw: () => number): number[] {
  for (let index = list.length - 1; index > 0; index -= 1) {
    const other = Math.floor(draw() * (index + 1));
    [list[index], list[other]] = [list[other] ?? 0, list[index] ?? 0];
  }
  return list;
}

/** Numbers in [0, 1): a linear congruential generator (Numerical Recipes). */
function numbersFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}
