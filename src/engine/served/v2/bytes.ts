import { isUtf8 } from "node:buffer";
import { tensorElement, type Tensor, type TensorType, type Texts } from "../../../columnar/tensor.js";
import { bytesPerElement, elementsOf } from "../../../columnar/values.js";
import { UnfitValue } from "../json.js";

/** The bytes of a tensor in the binary extension: little-endian and row-major; texts with their length before each. */
export function tensorBytes(tensor: Tensor): Uint8Array {
  if (tensor.dtype === "string") {
    return textBytes(tensor.data);
  }
  const { buffer, byteOffset, byteLength } = tensor.data;
  return new Uint8Array(buffer, byteOffset, byteLength);
}

const lengthBytes = 4;

function textBytes({ offsets, bytes }: Texts): Uint8Array {
  const count = offsets.length - 1;
  const packed = new Uint8Array(bytes.length + count * lengthBytes);
  const view = new DataView(packed.buffer);
  let at = 0;
  for (let index = 0; index < count; index += 1) {
    const [from = 0, to = 0] = [offsets[index], offsets[index + 1]];
    view.setUint32(at, to - from, true);
    packed.set(bytes.subarray(from, to), at + lengthBytes);
    at += lengthBytes + to - from;
  }
  return packed;
}

/**
 * The tensor in bytes of the binary extension; undefined if there are not exactly as many as its shape says.
 * @throws UnfitValue for a text that is not UTF-8
 */
export function tensorOfBytes(
  { dtype, dims }: { readonly dtype: TensorType; readonly dims: readonly number[] },
  bytes: Uint8Array<ArrayBuffer>,
): Tensor | undefined {
  const count = dims.reduce((product, size) => product * size, 1);
  if (dtype === "string") {
    const data = textsOfBytes(bytes, count);
    return data === undefined ? undefined : { dtype, dims, data };
  }
  const element = tensorElement(dtype);
  // A copy: the answer is larger than the tensor, and its parts are not aligned.
  return bytes.length === count * bytesPerElement(element)
    ? { dtype, dims, data: elementsOf(element, bytes.slice()) }
    : undefined;
}

function textsOfBytes(packed: Uint8Array<ArrayBuffer>, count: number): Texts | undefined {
  if (packed.length < count * lengthBytes) {
    return undefined;
  }
  const view = new DataView(packed.buffer, packed.byteOffset, packed.length);
  const offsets = new Uint32Array(count + 1);
  const bytes = new Uint8Array(packed.length - count * lengthBytes);
  let at = 0;
  let written = 0;
  for (let index = 0; index < count; index += 1) {
    const length = at + lengthBytes <= packed.length ? view.getUint32(at, true) : packed.length;
    at += lengthBytes;
    if (at + length > packed.length) {
      return undefined;
    }
    const text = packed.subarray(at, at + length);
    if (!isUtf8(text)) {
      throw new UnfitValue("a text that is not UTF-8");
    }
    bytes.set(text, written);
    at += length;
    written += length;
    offsets[index + 1] = written;
  }
  return at === packed.length ? { offsets, bytes } : undefined;
}
