import { assertNever } from "../../util/errors.js";
import { type Classes, type Ensemble, Unsupported } from "./ensemble.js";
import { type Floats, neutralOf } from "./scorer.js";

/** What a node of trees gives for rows that were scored, as tree_ensemble_aggregator.h of ONNX Runtime makes it. */
export interface Outcome {
  /** [rows, targets]. */
  readonly values: Floats;
  /** The index of each row's label; empty for a regressor. */
  readonly labels: Uint32Array<ArrayBuffer>;
}

/** Turns the sums of rows [from, to) into values of `outcome`. */
type Finish = (from: number, to: number, scores: readonly Floats[], outcome: Outcome) => void;

/** @throws Unsupported where ONNX Runtime leaves some outputs as they were in memory */
export function finisher(ensemble: Ensemble, isDouble: boolean): Finish {
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

/** TreeAggregator*::FinalizeScores1. Of the post transforms, it knows probit alone. */
function oneTarget(ensemble: Ensemble, isDouble: boolean): Finish {
  const { aggregate, transform } = ensemble;
  const round = roundingOf(isDouble);
  const base = ensemble.base[0] ?? 0;
  const trees = ensemble.roots.length;
  return (from, to, [scores = new Float32Array()], { values }) => {
    for (let row = from; row < to; row += 1) {
      const sum = scores[row - from] ?? 0;
      const score = round((aggregate === "AVERAGE" ? round(sum / trees) : sum) + base);
      values[row] = transform === "PROBIT" ? probit(Math.fround(score)) : score;
    }
  };
}

/** TreeAggregator*::FinalizeScores. */
function severalTargets(ensemble: Ensemble, isDouble: boolean): Finish {
  const { aggregate, targets } = ensemble;
  const round = roundingOf(isDouble);
  const base = ensemble.base.length === targets ? ensemble.base : new Float64Array(targets);
  const trees = ensemble.roots.length;
  const neutral = neutralOf(ensemble);
  const write = transformer(ensemble);
  const row = isDouble ? new Float64Array(targets) : new Float32Array(targets);
  return (from, to, scores, { values }) => {
    for (let at = from; at < to; at += 1) {
      for (let target = 0; target < targets; target += 1) {
        const sum = scores[target]?.[at - from] ?? 0;
        const score = aggregate === "AVERAGE" ? round(sum / trees) : sum;
        // ONNX Runtime writes 0 for a target that none of the row's leaves has, even if it has a base value.
        row[target] = Object.is(sum, neutral) ? 0 : round(score + (base[target] ?? 0));
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
  const write = transformer(ensemble);
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
function transformer({ transform }: Pick<Ensemble, "transform">): (values: Float32Array | Float64Array) => void {
  switch (transform) {
    case "LOGISTIC":
      return each(logistic);
    case "PROBIT":
      return each(probit);
    case "SOFTMAX":
      return softmax;
    case "SOFTMAX_ZERO":
      return softmaxZero;
    case "NONE":
      return () => undefined;
    default:
      return assertNever(transform);
  }
}

function each(change: (x: number) => number): (values: Float32Array | Float64Array) => void {
  return (values) => {
    for (let index = 0; index < values.length; index += 1) {
      values[index] = change(Math.fround(values[index] ?? 0));
    }
  };
}

/** Finishes the scores of two classes, where one score may determine both. */
function twoClasses(ensemble: Ensemble, classes: Classes, isDouble: boolean): Finish {
  const { base, transform } = ensemble;
  if ((base.length === 1 && !classes.binary) || transform === "PROBIT") {
    throw new Unsupported("of one score, ONNX Runtime writes one class alone");
  }
  const round = roundingOf(isDouble);
  const write = transformer(ensemble);
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
): (score: number, values: Floats, at: number) => void {
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

const factor = fround(0.147);
const rootOfTwo = fround(Math.SQRT2);
const scale = fround(2 / fround(fround(Math.PI) * factor));
const inverse = fround(1 / factor);

/** ComputeProbit of ONNX Runtime's ml_common.h. */
function probit(x: number): number {
  const y = fround(fround(2 * x) - 1);
  const log = fround(Math.log(fround(fround(1 - y) * fround(1 + y))));
  const v = fround(scale + fround(0.5 * log));
  const root = fround(Math.sqrt(fround(fround(v * v) - fround(inverse * log))));
  return fround(rootOfTwo * fround((y < 0 ? -1 : 1) * fround(Math.sqrt(fround(root - v)))));
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

/** ComputeSoftmaxZero, in place: values near 0 stay near it. */
function softmaxZero(values: Float32Array | Float64Array): void {
  const top = largest(values);
  const factorOfZeros = expOfFloat(-top);
  let sum = 0;
  for (let index = 0; index < values.length; index += 1) {
    const value = fround(values[index] ?? 0);
    if (value > nearZero || value < -nearZero) {
      const power = expOfFloat(fround(value - top));
      values[index] = power;
      sum = fround(sum + power);
    } else {
      values[index] = (values[index] ?? 0) * factorOfZeros;
    }
  }
  for (let index = 0; index < values.length; index += 1) {
    values[index] = (values[index] ?? 0) / sum;
  }
}

const nearZero = fround(0.0000001);

function largest(values: Float32Array | Float64Array): number {
  let top = -fround(3.4028234663852886e38);
  for (const value of values) {
    top = fround(value) > top ? fround(value) : top;
  }
  return top;
}
