import type { Tensor } from "../columnar/tensor.js";
import type { BatchRows } from "../packing/input-target.js";
import { type FeatureBatch, sliceRows } from "../packing/packer.js";
import type { Predictions } from "../packing/scored-batch.js";

/** Predicted rows of one call of a model, as `SpanRows.predict` takes them. */
export interface PredictedPart extends Omit<FeatureBatch, "inputs"> {
  readonly part: Predictions;
  /** Whether the call's first row is among the rows that were asked for, as it is once for each call. */
  readonly isBegun: boolean;
  readonly outputs: readonly Tensor[];
}

/** Cuts rows [from, to) of a batch that a worker scored into its calls of the model; `row` is the number of row `from`. */
export function* predictedParts(
  predictions: readonly Predictions[],
  { from, to, row }: BatchRows,
): Generator<PredictedPart> {
  let end = 0;
  for (const part of predictions) {
    const start = end;
    end += part.rowCount;
    const taken = { from: Math.max(from, start) - start, to: Math.min(to, end) - start };
    const rowCount = taken.to - taken.from;
    if (rowCount > 0) {
      const isBegun = taken.from === 0;
      yield { part, isBegun, rowStart: row + start + taken.from - from, rowCount, ...rowsOf(part, taken) };
    }
  }
}

/** The tensors of a part, or of some of its rows. Those that are not as long as the batch stay, to be refused. */
function rowsOf(
  { outputs, rowCount, packedRows }: Predictions,
  { from, to }: Pick<BatchRows, "from" | "to">,
): Pick<Predictions, "outputs" | "packedRows"> {
  const isWhole = to - from === rowCount || outputs.some(({ dims }) => dims[0] !== packedRows);
  return isWhole
    ? { outputs, packedRows }
    : { outputs: outputs.map((tensor) => sliceRows(tensor, from, to)), packedRows: to - from };
}
