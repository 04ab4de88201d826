import { assertNever } from "../../util/errors.js";
import { randomNumbers } from "../../util/random.js";
import type { Ensemble } from "./ensemble.js";
import { neighbourOf } from "./float-neighbours.js";
import type { RowType, RowValues } from "./row-values.js";

/** Values that models seldom meet and comparisons treat in their own ways. */
const rareFloats = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0, -0];
/** Among them some that are no float32. */
const rareIntegers = [0, 1, -1, 2 ** 24 + 1, 2 ** 25 + 3, 2 ** 31 - 1, -(2 ** 31)];

/**
 * Rows made of what an ensemble compares with: each threshold, the numbers next to it, and rare values such as NaN,
 * infinities and both zeros. Each value occurs in a row. The values of a row are combined at random, with a fixed seed.
 * @param most rows at most, drawn where there are more
 */
export function makeTestRows(
  { nodes }: Pick<Ensemble, "nodes">,
  { width, type, most }: { readonly width: number; readonly type: RowType; readonly most: number },
): RowValues {
  const values = Array.from({ length: width }, () => new Set<number>(isFloat(type) ? rareFloats : rareIntegers));
  for (const [node, mode] of nodes.modes.entries()) {
    if (mode !== "LEAF") {
      const own = values[nodes.features[node] ?? 0];
      for (const threshold of nodes.members.get(node) ?? [nodes.thresholds[node] ?? 0]) {
        for (const value of valuesAround(threshold, type)) {
          own?.add(value);
        }
      }
    }
  }
  const draw = randomNumbers(1);
  const lists = values.map((set) => shuffled([...set], draw));
  const longest = lists.reduce((length, list) => Math.max(length, list.length), 1);
  const rows = Math.max(1, Math.min(most, Math.max(longest, fewestRows)));
  const made = new Float64Array(rows * width);
  for (const [feature, list] of lists.entries()) {
    for (let row = 0; row < rows; row += 1) {
      // Once each value was there, they are drawn: rows of few NaN reach leaves that others do not.
      const place = row < list.length ? row : Math.floor(draw() * list.length);
      made[row * width + feature] = list[place] ?? 0;
    }
  }
  return valuesOf(made, type);
}

function isFloat(type: RowType): boolean {
  return type === "float32" || type === "float64";
}

function valuesAround(threshold: number, type: RowType): number[] {
  if (isFloat(type)) {
    const neighbour = (side: 1 | -1): number => neighbourOf(threshold, side, type === "float64");
    return Number.isFinite(threshold) ? [threshold, neighbour(1), neighbour(-1)] : [threshold];
  }
  const whole = Math.floor(threshold);
  return [whole - 1, whole, whole + 1, whole + 2].filter((value) => Math.abs(value) < 2 ** 31);
}

function valuesOf(numbers: Float64Array<ArrayBuffer>, type: RowType): RowValues {
  switch (type) {
    case "float32":
      return new Float32Array(numbers);
    case "float64":
      return numbers;
    case "int32":
      return new Int32Array(numbers);
    case "int64":
      return BigInt64Array.from(numbers, BigInt);
    default:
      return assertNever(type);
  }
}

const fewestRows = 256;

function shuffled(list: number[], draw: () => number): number[] {
  for (let index = list.length - 1; index > 0; index -= 1) {
    const other = Math.floor(draw() * (index + 1));
    [list[index], list[other]] = [list[other] ?? 0, list[index] ?? 0];
  }
  return list;
}
