import {
  elementCount,
  isTensorType,
  type ModelSignature,
  type NamedTensor,
  tensorElement,
  type TensorSignature,
} from "./tensor.js";
import { allocate } from "./values.js";

/**
 * Rows of zeros and empty texts, with one element where a size may vary. undefined: an input has a type that no tensor has.
 */
export function blankRows(inputs: readonly TensorSignature[], rows: number): NamedTensor[] | undefined {
  const blank = inputs.flatMap((input) => blankTensor(input, rows));
  return blank.length < inputs.length ? undefined : blank;
}

/** Blank rows for each input that is a tensor: so many, where the model does not fix their number. */
export function blankBatch({ inputs }: Pick<ModelSignature, "inputs">, rows = 1): NamedTensor[] {
  return inputs.flatMap((input) => blankTensor(input, input.shape[0] ?? rows));
}

/** Names of the outputs that are tensors. */
export function tensorOutputs({ outputs }: Pick<ModelSignature, "outputs">): string[] {
  return outputs.flatMap(({ name, dtype }) => (dtype === undefined ? [] : [name]));
}

function blankTensor({ name, dtype, shape }: TensorSignature, rows: number): NamedTensor[] {
  if (!isTensorType(dtype)) {
    return [];
  }
  const dims = shape.map((size, index) => (index === 0 ? rows : (size ?? 1)));
  const count = elementCount(dims);
  return dtype === "string"
    ? [{ name, dtype, dims, data: { offsets: new Uint32Array(count + 1), bytes: new Uint8Array() } }]
    : [{ name, dtype, dims, data: allocate(tensorElement(dtype), count) }];
}
