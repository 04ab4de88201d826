import { createExactAdder } from "./exact-sum.js";
import { binOf, fitHistogram } from "./histogram.js";
import { profileInLoops } from "./number-loops.js";
import {
  blockValues,
  countNumber,
  type NextNumbers,
  noCounts,
  type NumberProfile,
  type ProfileLimits,
} from "./number-profile.js";
import { limitValues, manyNumbers } from "./value-counts.js";

/** The profile of all numbers that come. */
export function profileNumbers(next: NextNumbers, limits: ProfileLimits): NumberProfile {
  return profileInLoops(next, limits) ?? profilePlainly(next, limits);
}

/**
 * The same, slowly: where there is no WebAssembly (`ulimit -v`), as DuckDB adds up with rounding.
 * @public so that tests see it
 */
export function profilePlainly(next: NextNumbers, limits: ProfileLimits): NumberProfile {
  const block = new Float64Array(blockValues);
  const found = { ...noCounts };
  const [sum, squares] = [createExactAdder(), createExactAdder()];
  const bins = new Map<number, number>();
  const counts = new Map<number, number>();
  for (let count = next(block); count > 0; count = next(block)) {
    for (const value of block.subarray(0, count)) {
      if (!countNumber(found, value)) {
        continue;
      }
      sum.add(value);
      squares.add(value * value);
      const bin = binOf(value, 0);
      bins.set(bin, (bins.get(bin) ?? 0) + 1);
      if (counts.size <= limits.values) {
        counts.set(value, (counts.get(value) ?? 0) + 1); // which takes -0 for 0
      }
    }
  }
  const keys = Int32Array.from(bins.keys()).toSorted();
  const inBins = Float64Array.from(keys, (key) => bins.get(key) as number);
  const names = new Map([...counts].map(([value, count]) => [String(value), count]));
  return {
    ...found,
    sum: sum.finish(),
    squares: squares.finish(),
    histogram: fitHistogram({ shift: 0, keys, counts: inBins }, limits.bins),
    values: counts.size > limits.values ? manyNumbers : limitValues(names, limits, undefined),
  };
}
