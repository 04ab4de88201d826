import type { Tensor } from "../../columnar/tensor.js";
import { type Classes, type Ensemble, Unsupported } from "./ensemble.js";
import { finisher } from "./outcome.js";
import { floatsOf } from "./row-values.js";
import { openTreeScorer } from "./scorer.js";
import { labelTensor } from "./labels.js";

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
        labels: () => labelTensor(labels, labelsOf(classes)),
      };
    },
    [Symbol.dispose]() {
      scorer[Symbol.dispose]();
    },
  };
}

function labelsOf(classes: Classes | undefined): Classes["labels"] {
  if (classes === undefined) {
    throw new Error("a regressor has no labels");
  }
  return classes.labels;
}
