import { encodeTexts, type Tensor } from "../../columns/tensor.js";
import { type Classes, type Ensemble, type Transform, Unsupported } from "./ensemble.js";
import { type Floats, openTreeScorer } from "./scorer.js";

/** A node of trees that scores rows by itself. */
export interface CompiledTrees extends Disposable {
  /** The features that a row must have at least. */
  readonly features: number;
  /**
   * Scores rows as ONNX Runtime's node does.
   * @param x [rows, features] of the type that it was compiled for; int32 and int64 where that is float32
   * @throws Unsupported where they are of another type or shape
   */
  run(x: Tensor): CompiledOutput;
}

export interface CompiledOutput {
  /** float32 [rows, targets]. */
  readonly values: Tensor;
  /** [rows]; made where they are asked for. */
  readonly labels: () => Tensor;
}

/** @param isDouble whether rows are doubles. @throws Unsupported */
export function compileTrees(ensemble: Ensemble, isDouble: boolean): CompiledTrees {
  const finish = finisher(ensemble, isDouble);
  const scorer = openTreeScorer(ensemble, isDouble);
  const { targets, classes } = ensemble;
  return {
    features: scorer.features,
    run(x) {
      const [rows = 0, width = 0] = x.dims;
      const data = floatsOf(x, isDouble);
      if (data === undefined || x.dims.length !== 2 || width < Math.max(1, scorer.features)) {
        throw new Unsupported(`rows of ${x.dtype} [${x.dims.join(",")}]`);
      }
      const values = new Float32Array(rows * targets);
      const labels = new Uint32Array(classes === undefined ? 0 : rows);
      scorer.score(data, width, (from, to, scores) => {
        finish(from, to, scores, { values, labels });
      });
      return {
        values: { dtype: "float32", dims: [rows, targets], data: values },
        labels() {
          if (classes === undefined) {
            throw new Error("a regressor has no labels");
          }
          return labelTensor(labels, classes.labels);
        },
      };
    },
    [Symbol.dispose]() {
      scorer[Symbol.dispose]();
    },
  };
}

function labelTensor(places: Uint32Array, labels: Classes["labels"]): Tensor {
  const dims = [places.length];
  return labels.kind === "int64"
    ? { dtype: "int64", dims, data: numbersOf(places, labels.values) }
    : { dtype: "string", dims, data: textsOf(places, labels.values) };
}

/** Copies int64 labels as two halves: a BigInt for each row would take longer than its trees. */
function numbersOf(places: Uint32Array, labels: BigInt64Array): BigInt64Array<ArrayBuffer> {
  const halves = new Int32Array(labels.slice().buffer);
  const numbers = new BigInt64Array(places.length);
  const written = new Int32Array(numbers.buffer);
  for (let row = 0; row < places.length; row += 1) {
    const place = 2 * (places[row] ?? 0);
    written[2 * row] = halves[place] ?? 0;
    written[2 * row + 1] = halves[place + 1] ?? 0;
  }
  return numbers;
}

function textsOf(places: Uint32Array, labels: readonly string[]): Extract<Tensor, { dtype: "string" }>["data"] {
  const encoded = labels.map((label) => encodeTexts([label]).bytes);
  const offsets = new Uint32Array(places.length + 1);
  let length = 0;
  for (let row = 0; row < places.length; row += 1) {
    length += encoded[places[row] ?? 0]?.length ?? 0;
    offsets[row + 1] = length;
  }
  const bytes = new Uint8Array(length);
  for (let row = 0; row < places.length; row += 1) {
    bytes.set(encoded[places[row] ?? 0] ?? new Uint8Array(), offsets[row]);
  }
  return { offsets, bytes };
}

/** What a row of features consists of. */
export type RowType = "float32" | "float64" | "int32" | "int64";
export type RowValues =
  | Float32Array<ArrayBuffer>
  | Float64Array<ArrayBuffer>
  | Int32Array<ArrayBuffer>
  | BigInt64Array<ArrayBuffer>;

/**
 * The values of rows as an ensemble compares them: doubles as they are, anything else as float32. ONNX Runtime compares
 * whole numbers with float32 thresholds, so it rounds them, ties to even. undefined: rows of another type.
 * @public so that tests see how numbers are rounded
 */
export function floatsOf({ dtype, data, dims }: Tensor, isDouble: boolean): Floats | undefined {
  const floats = dtype === "string" ? undefined : isDouble ? doubles(data) : singles(data);
  return floats?.length === (dims[0] ?? 0) * (dims[1] ?? 0) ? floats : undefined;
}

function doubles(data: unknown): Floats | undefined {
  return data instanceof Float64Array ? (data as Float64Array<ArrayBuffer>) : undefined;
}

function singles(data: unknown): Floats | undefined {
  if (data instanceof Float32Array) {
    return data as Float32Array<ArrayBuffer>;
  }
  if (data instanceof Int32Array) {
    return new Float32Array(data);
  }
  return data instanceof BigInt64Array ? roundLongs(data) : undefined;
}

const firstWordIsLow = new Uint32Array(BigUint64Array.of(1n).buffer)[0] === 1;

/** The float32 next to each. A BigInt for each value would take ten times as long as its two words. */
function roundLongs(data: BigInt64Array): Float32Array<ArrayBuffer> {
  const words = new Uint32Array(data.buffer, data.byteOffset, data.length * 2);
  const [low, high] = firstWordIsLow ? [0, 1] : [1, 0];
  const floats = new Float32Array(data.length);
  for (let index = 0; index < data.length; index += 1) {
    const upper = (words[2 * index + high] as number) | 0;
    let lower = words[2 * index + low] as number;
    if (upper >= 0x200000 || upper < -0x200000) {
      // Beyond 2^53 a float64 rounds, and two roundings may differ from one. Of the bits below 2^12, which are far
      // below the last one of a float32 there, it matters only whether there are any.
      lower = (lower & 0xfff) === 0 ? lower : ((lower & ~0xfff) | 0x800) >>> 0;
    }
    floats[index] = upper * 2 ** 32 + lower;
  }
  return floats;
}

/** What a node of trees gives for rows that were scored, as tree_ensemble_aggregator.h of ONNX Runtime makes it. */
interface Outcome {
  /** [rows, targets]. */
  readonly values: Float32Array;
  /** The index of each row's label; empty for a regressor. */
  readonly labels: Uint32Array<ArrayBuffer>;
}

/** Turns the sums of rows [from, to) into values of `outcome`. */
type Finish = (from: number, to: number, scores: readonly Floats[], outcome: Outcome) => void;

/** @throws Unsupported where ONNX Runtime leaves some outputs as they were in memory */
function finisher(ensemble: Ensemble, isDouble: boolean): Finish {
  const { classes, targets } = ensemble;
  if (classes === undefined) {
    return targets === 1 ? oneTarget(ensemble, isDouble) : severalTargets(ensemble, isDouble);
  }
  return targets === 2 ? twoClasses(ensemble, classes, isDouble) : severalClasses(ensemble, isDouble);
}

type Round = (value: number) => number;

function roundingOf(isDouble: boolean): Round {
  return isDouble ? (value) => value : Math.fround;
}

/** TreeAggregator*::FinalizeScores1, which knows none of these post transforms. */
function oneTarget(ensemble: Ensemble, isDouble: boolean): Finish {
  const round = roundingOf(isDouble);
  const base = ensemble.base[0] ?? 0;
  return (from, to, [scores = new Float32Array()], { values }) => {
    for (let row = from; row < to; row += 1) {
      values[row] = round((scores[row - from] ?? 0) + base);
    }
  };
}

/** TreeAggregator*::FinalizeScores. */
function severalTargets(ensemble: Ensemble, isDouble: boolean): Finish {
  const { targets } = ensemble;
  const round = roundingOf(isDouble);
  const base = ensemble.base.length === targets ? ensemble.base : new Float64Array(targets);
  const write = transforms[ensemble.transform];
  const row = isDouble ? new Float64Array(targets) : new Float32Array(targets);
  return (from, to, scores, { values }) => {
    for (let at = from; at < to; at += 1) {
      for (let target = 0; target < targets; target += 1) {
        const sum = scores[target]?.[at - from] ?? 0;
        // ONNX Runtime writes 0 for a target that none of the row's leaves has, even if it has a base value.
        row[target] = Object.is(sum, -0) ? 0 : round(sum + (base[target] ?? 0));
      }
      write(row);
      values.set(row, at * targets);
    }
  };
}

/** TreeAggregatorClassifier::FinalizeScores of more than two classes. */
function severalClasses(ensemble: Ensemble, isDouble: boolean): Finish {
  const { targets, base } = ensemble;
  const round = roundingOf(isDouble);
  const write = transforms[ensemble.transform];
  const row = isDouble ? new Float64Array(targets) : new Float32Array(targets);
  return (from, to, scores, { values, labels }) => {
    for (let at = from; at < to; at += 1) {
      let best = -1;
      let top = 0;
      for (let target = 0; target < targets; target += 1) {
        const sum = scores[target]?.[at - from] ?? 0;
        const isThere = base.length > 0 || !Object.is(sum, -0);
        const score = base.length > 0 ? round(sum + (base[target] ?? 0)) : sum + 0;
        row[target] = score;
        if (isThere && (best === -1 || score > top)) {
          best = target;
          top = score;
        }
      }
      labels[at] = Math.max(0, best);
      write(row);
      values.set(row, at * targets);
    }
  };
}

/** write_scores of two or more values, in place. */
const transforms: Readonly<Record<Transform, (values: Float32Array | Float64Array) => void>> = {
  NONE: () => undefined,
  LOGISTIC(values) {
    for (let index = 0; index < values.length; index += 1) {
      values[index] = logistic(Math.fround(values[index] ?? 0));
    }
  },
  SOFTMAX: softmax,
};

function twoClasses(ensemble: Ensemble, classes: Classes, isDouble: boolean): Finish {
  const { base } = ensemble;
  if (base.length === 1 && !classes.binary) {
    throw new Unsupported("of one score, ONNX Runtime writes one class alone");
  }
  const round = roundingOf(isDouble);
  const write = transforms[ensemble.transform];
  const both = isDouble ? new Float64Array(2) : new Float32Array(2);
  const pair = pairWriter(ensemble, classes, round);
  return (from, to, [first = both, second = both], { values, labels }) => {
    for (let row = from; row < to; row += 1) {
      let zero = first[row - from] ?? 0;
      let one = second[row - from] ?? 0;
      const hasZero = !Object.is(zero, -0);
      const hasOne = !Object.is(one, -0);
      if (base.length === 2) {
        if (hasOne) {
          one = round((base[1] ?? 0) + (zero + 0)); // the score of class 1 itself does not count there
          zero = -one;
        } else {
          one = round(one + (base[1] ?? 0));
          zero = round(zero + (base[0] ?? 0));
        }
      } else if (base.length === 1) {
        zero = round(zero + (base[0] ?? 0));
      }
      const positive = hasOne ? one : hasZero ? zero : 0;
      labels[row] = positive > (classes.binary && classes.allPositive ? 0.5 : 0) ? 1 : 0;
      if (hasOne || base.length === 2) {
        both[0] = hasZero ? zero : 0;
        both[1] = hasOne ? one : 0;
        write(both);
        values.set(both, 2 * row);
      } else {
        pair(hasZero ? zero : 0, values, 2 * row);
      }
    }
  };
}

/** write_scores of one value, for two classes. */
function pairWriter(
  { transform }: Ensemble,
  { binary, allPositive }: Classes,
  round: Round,
): (score: number, values: Float32Array, at: number) => void {
  if (transform === "LOGISTIC") {
    return (score, values, at) => {
      values[at] = logistic(Math.fround(-score));
      values[at + 1] = logistic(Math.fround(score));
    };
  }
  if (binary && allPositive) {
    return (score, values, at) => {
      values[at] = round(1 - score);
      values[at + 1] = score;
    };
  }
  return (score, values, at) => {
    values[at] = -score;
    values[at + 1] = score;
  };
}

/**
 * e^x of a float32, as glibc computes it (expf of ARM's optimized routines): a table of 2^(i/32) and a polynomial, in
 * doubles. ONNX Runtime calls it for its post transforms; Math.exp, rounded, differs in the last bit now and then.
 */
function expOfFloat(x: number): number {
  if (!(x > -104)) {
    return Number.isNaN(x) ? x : 0;
  }
  if (x > 89) {
    return Number.POSITIVE_INFINITY;
  }
  const scaled = x * turnsPerUnit;
  const turns = scaled + roundingShift - roundingShift;
  const rest = scaled - turns;
  const squared = rest * rest;
  const whole = Math.floor(turns / tableLength);
  const power = (powers[turns - whole * tableLength] ?? 1) * (exponents[whole - leastExponent] ?? 0);
  const high = cubic * rest + quadratic;
  const low = linear * rest + 1;
  return Math.fround((high * squared + low) * power);
}

const tableLength = 32;
const turnsPerUnit = Math.LOG2E * tableLength;
/** Adding and subtracting this number rounds a double to a whole number. */
const roundingShift = 6755399441055744; // 1.5 * 2^52
const cubic = 0.05550361559341535 / tableLength ** 3;
const quadratic = 0.2402284522445722 / tableLength ** 2;
const linear = 0.6931471806916203 / tableLength;
const powers = Float64Array.from({ length: tableLength }, (_, index) => 2 ** (index / tableLength));
const leastExponent = -152;
const exponents = Float64Array.from({ length: 284 }, (_, index) => 2 ** (index + leastExponent));

const { fround } = Math;

/** ComputeLogistic of ONNX Runtime's ml_common.h. */
function logistic(x: number): number {
  const value = fround(1 / fround(1 + expOfFloat(-Math.abs(x))));
  return x < 0 ? fround(1 - value) : value;
}

/** ComputeSoftmax, in place. */
function softmax(values: Float32Array | Float64Array): void {
  const top = largest(values);
  let sum = 0;
  for (let index = 0; index < values.length; index += 1) {
    const power = expOfFloat(fround(fround(values[index] ?? 0) - top));
    values[index] = power;
    sum = fround(sum + power);
  }
  for (let index = 0; index < values.length; index += 1) {
    values[index] = fround((values[index] ?? 0) / sum);
  }
}

function largest(values: Float32Array | Float64Array): number {
  let top = -fround(3.4028234663852886e38);
  for (const value of values) {
    top = fround(value) > top ? fround(value) : top;
  }
  return top;
}
