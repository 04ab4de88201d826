import {
  elementCount,
  isTensorType,
  type ModelSignature,
  type NamedTensor,
  tensorElement,
} from "../../columnar/tensor.js";
import { allocate } from "../../columnar/values.js";

/** Returns rows of zeros and empty texts for each input that is a tensor; variable dimensions but the first are 1. */
export function blankBatch({ inputs }: Pick<ModelSignature, "inputs">, rows = 1): NamedTensor[] {
  return inputs.flatMap(({ name, dtype, shape }): NamedTensor[] => {
    if (!isTensorType(dtype)) {
      return [];
    }
    const dims = shape.map((size, axis) => size ?? (axis === 0 ? rows : 1));
    const length = elementCount(dims);
    return dtype === "string"
      ? [{ name, dtype, dims, data: { offsets: new Uint32Array(length + 1), bytes: new Uint8Array() } }]
      : [{ name, dtype, dims, data: allocate(tensorElement(dtype), length) }];
  });
}

/** Names of the outputs that are tensors. */
export function tensorOutputs({ outputs }: Pick<ModelSignature, "outputs">): string[] {
  return outputs.flatMap(({ name, dtype }) => (dtype === undefined ? [] : [name]));
}
