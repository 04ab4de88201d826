// Random numbers of a seed, and profiles of random rows, drawn as counts: a multinomial draw over the cells of a
// distribution is what counting so many rows would give.
import { keyOfText } from "#src/checks/profile/column.js";
import { keyOfNumber } from "#src/checks/profile/histogram.js";
import { randomFrom } from "../random.mjs";

/** Draws of a seed: the same ones for the same seed. */
export function randomOf(seed) {
  const next = randomFrom(seed);
  const normal = () => Math.sqrt(-2 * Math.log(next() + 2 ** -33)) * Math.cos(2 * Math.PI * next());
  return { next, normal, between: (low, high) => low + (high - low) * next() };
}

/** How many of `n` come, each with probability `p`: drawn one by one, from a Poisson or from a normal distribution, depending on the size. */
function binomial({ next, normal }, n, p) {
  if (n <= 0 || p <= 0) {
    return 0;
  }
  if (p > 0.5) {
    return n - binomial({ next, normal }, n, 1 - p);
  }
  const due = n * p;
  if (due > 30) {
    return Math.min(Math.max(Math.round(due + Math.sqrt(due * (1 - p)) * normal()), 0), n);
  }
  // The distance to the next success has a geometric distribution.
  let [count, at] = [0, 0];
  const step = Math.log(1 - p);
  for (;;) {
    at += Math.floor(Math.log(1 - next()) / step) + 1;
    if (at > n) {
      return count;
    }
    count += 1;
  }
}

/** Counts of `n` rows in cells of these probabilities, which add up to 1. */
function multinomial(random, n, probabilities) {
  const counts = new Float64Array(probabilities.length);
  let [rows, share] = [n, 1];
  for (let cell = 0; cell < probabilities.length && rows > 0; cell += 1) {
    const probability = probabilities[cell];
    counts[cell] = share <= probability ? rows : binomial(random, rows, probability / share);
    rows -= counts[cell];
    share -= probability;
  }
  return counts;
}

/** Cells of a standard normal variable. */
const cells = 84;
const widest = 4.5;
const edges = Float64Array.from({ length: cells + 1 }, (_, cell) => ((cell / cells) * 2 - 1) * widest);

/** Abramowitz and Stegun 7.1.26; within 2e-7. */
function below(z) {
  const t = 1 / (1 + (0.3275911 * Math.abs(z)) / Math.SQRT2);
  const poly = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  const tail = 0.5 * poly * Math.exp((-z * z) / 2);
  return z < 0 ? tail : 1 - tail;
}

/** Probabilities of the cells where the variable has this mean and deviation. */
export function cellsOf({ mean, deviation }) {
  const upTo = edges.map((edge) => below((edge - mean) / deviation));
  upTo[0] = 0;
  upTo[cells] = 1;
  return Float64Array.from({ length: cells }, (_, cell) => upTo[cell + 1] - upTo[cell]);
}

/** `share` of one and the rest of the other. */
export function mixed(one, other, share) {
  return one.map((probability, cell) => probability * share + other[cell] * (1 - share));
}

/**
 * The numbers that the cells represent: `value` of the middle of each cell, in ascending order; and zero.
 * @returns {{ keys: number[], cellOf: Int32Array, values: Float64Array, numbers: Float64Array, isWhole: boolean }}
 */
export function gridOf(value, isWhole = false) {
  const values = Float64Array.from({ length: cells }, (_, cell) => {
    const found = value((edges[cell] + edges[cell + 1]) / 2);
    return isWhole ? Math.round(found) : found;
  });
  const byKey = new Map([...values, 0].map((number) => [keyOfNumber(number), number]));
  const keys = [...byKey.keys()].toSorted((one, other) => one - other);
  const numbers = Float64Array.from(keys, (key) => byKey.get(key));
  return {
    keys,
    cellOf: Int32Array.from(values, (number) => keys.indexOf(keyOfNumber(number))),
    values,
    numbers,
    isWhole,
  };
}

/** The profile of a column of numbers, of which a share is NULL and a share zero. */
export function drawNumbers(random, { rows, grid, probabilities, nulls = 0, zeros = 0, type }) {
  const missing = binomial(random, rows, nulls);
  const zero = binomial(random, rows - missing, zeros);
  const counts = multinomial(random, rows - missing - zero, probabilities);
  const { keys, cellOf, values } = grid;
  const byKey = new Float64Array(keys.length);
  let [first, last] = [counts.length, -1];
  for (let cell = 0; cell < counts.length; cell += 1) {
    if (counts[cell] > 0) {
      byKey[cellOf[cell]] += counts[cell];
      first = Math.min(first, cell);
      last = cell;
    }
  }
  const zeroAt = keys.indexOf(keyOfNumber(0));
  if (zero > 0) {
    byKey[zeroAt] += zero;
  }
  const [min, max] = last < 0 ? [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY] : [values[first], values[last]];
  return {
    kind: "numbers",
    type,
    rows,
    nulls: missing,
    nan: 0,
    infinite: [0, 0],
    min: zero > 0 ? Math.min(min, 0) : min,
    max: zero > 0 ? Math.max(max, 0) : max,
    sum: [0, 0],
    values: histogramOf(keys, byKey),
  };
}

/** The profile of a column of texts with these probabilities by name. */
export function drawTexts(random, rows, shares) {
  const names = Object.keys(shares);
  const counts = multinomial(random, rows, Object.values(shares));
  const drawn = names
    .map((name, index) => ({ name, key: keyOfText("", name), count: counts[index] }))
    .filter(({ count }) => count > 0)
    .toSorted((one, other) => one.key - other.key);
  return {
    kind: "values",
    type: "utf8",
    rows,
    nulls: 0,
    values: { shift: 0, keys: drawn.map(({ key }) => key), counts: drawn.map(({ count }) => count) },
    names: new Map(drawn.map(({ name, key }) => [key, name])),
  };
}

/** The bins that have rows. */
function histogramOf(keys, counts) {
  const filled = keys.map((_, index) => index).filter((index) => counts[index] > 0);
  return { shift: 0, keys: filled.map((index) => keys[index]), counts: filled.map((index) => counts[index]) };
}
