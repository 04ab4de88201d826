import { encodeTexts, type Tensor } from "../../columnar/tensor.js";
import { type Classes, type Ensemble, Unsupported } from "./ensemble.js";
import { finisher } from "./outcome.js";
import { type Floats, openTreeScorer } from "./scorer.js";

/** A node of trees that scores rows by itself. */
export interface CompiledTrees extends Disposable {
  readonly isDouble: boolean;
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
  /** [rows, targets]: doubles for TreeEnsemble of doubles, else floats. */
  readonly values: Tensor;
  /** [rows]; made where they are asked for. */
  readonly labels: () => Tensor;
}

/** @param givesDoubles whether its output is one of doubles. @throws Unsupported */
export function compileTrees(
  ensemble: Ensemble,
  { isDouble, givesDoubles }: { readonly isDouble: boolean; readonly givesDoubles: boolean },
): CompiledTrees {
  const finish = finisher(ensemble, isDouble);
  const scorer = openTreeScorer(ensemble, isDouble);
  const { targets, classes } = ensemble;
  return {
    isDouble,
    features: scorer.features,
    run(x) {
      const [rows = 0, width = 0] = x.dims;
      const data = floatsOf(x, isDouble);
      if (data === undefined || x.dims.length !== 2 || width < Math.max(1, scorer.features)) {
        throw new Unsupported(`rows of ${x.dtype} [${x.dims.join(",")}]`);
      }
      const values = givesDoubles ? new Float64Array(rows * targets) : new Float32Array(rows * targets);
      const labels = new Uint32Array(classes === undefined ? 0 : rows);
      scorer.score(data, width, (from, to, scores) => {
        finish(from, to, scores, { values, labels });
      });
      return {
        values: { dtype: givesDoubles ? "float64" : "float32", dims: [rows, targets], data: values },
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
