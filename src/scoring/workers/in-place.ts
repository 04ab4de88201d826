import type { Contract } from "../../binding/contract.js";
import { matrixDims } from "../../packing/input-target.js";
import type { FeatureBatch } from "../../packing/packer.js";
import type { NamedTensor } from "../../columnar/tensor.js";
import type { DecodedInput, RecordBatch } from "../../columnar/types.js";
import { isKnownFinite } from "./batch-transfer.js";

/** Whether no row of an input can be bad, so that its rows need not be checked one by one. */
export function isGood(input: DecodedInput): boolean {
  return input.kind === "matrix" && input.valid === undefined && isKnownFinite(input);
}

/** Rows as the model takes them. */
export type PackedBatch = Pick<FeatureBatch, "inputs" | "packedRows">;

/** Rows [from, to) of a batch. */
export interface Rows {
  readonly from: number;
  readonly to: number;
}

/** Returns rows of good matrices as tensors without a copy; undefined: the model needs tensors of another form. */
export function inPlace(
  { inputs, fixedBatchRows }: Pick<Contract, "inputs" | "fixedBatchRows">,
  batch: Pick<RecordBatch, "inputs">,
  { from, to }: Rows,
): PackedBatch | undefined {
  const rows = to - from;
  if (fixedBatchRows !== null && fixedBatchRows !== rows) {
    return undefined;
  }
  const tensors: NamedTensor[] = [];
  for (const [index, binding] of inputs.entries()) {
    const matrix = batch.inputs[index];
    const isMatrix = binding.kind === "matrix" || binding.kind === "list";
    if (!isMatrix || binding.dtype === "float16" || matrix?.kind !== "matrix") {
      return undefined;
    }
    const { width } = matrix;
    const data = matrix.data.subarray(from * width, to * width);
    tensors.push({ name: binding.input, dtype: binding.dtype, dims: matrixDims(binding, rows, width), data });
  }
  return { inputs: tensors, packedRows: rows };
}
