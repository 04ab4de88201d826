import { elementCount, isTensorType, type NamedTensor, tensorElement, type TensorSignature } from "./tensor.js";
import { allocate } from "./values.js";

/**
 * Rows of zeros and empty texts, with one element where a size may vary. undefined: an input has a type that no tensor has.
 */
export function blankRows(inputs: readonly TensorSignature[], rows: number): NamedTensor[] | undefined {
  const blank = inputs.flatMap((input) => blankTensor(input, rows));
  return blank.length < inputs.length ? undefined : blank;
}

function blankTensor({ name, dtype, shape }: TensorSignature, rows: number): NamedTensor[] {
  const dims = shape.map((size, index) => (index === 0 ? rows : (size ?? 1)));
  const count = elementCount(dims);
  if (!isTensorType(dtype)) {
    return [];
  }
  return dtype === "string"
    ? [{ name, dtype, dims, data: { offsets: new Uint32Array(count + 1), bytes: new Uint8Array() } }]
    : [{ name, dtype, dims, data: allocate(tensorElement(dtype), count) }];
}
