import { elementCount, type Tensor } from "../../columns/tensor.js";
import type { Transform } from "./ensemble.js";

/**
 * How far a compiled ensemble's scores may differ from ONNX Runtime's. Leaves are added in its order and precision, so
 * without a post transform they are the same, bit for bit. Transforms call exp and log of the C library, which may
 * round otherwise on other machines; scores of those are probabilities.
 */
export function boundOf(transform: Transform): number {
  return transform === "NONE" ? 0 : 2 ** -21;
}

/** How two tensors of the same rows differ; undefined: by no more than `bound`. */
export function differenceOf(actual: Tensor, expected: Tensor, bound: number): string | undefined {
  if (actual.dtype !== expected.dtype || actual.dims.join() !== expected.dims.join()) {
    return `${actual.dtype} [${actual.dims.join(",")}], not ${expected.dtype} [${expected.dims.join(",")}]`;
  }
  if (actual.dtype === "string" || expected.dtype === "string") {
    const isSame =
      actual.dtype === "string" &&
      expected.dtype === "string" &&
      isSameBytes(actual.data.bytes, expected.data.bytes) &&
      isSameBytes(actual.data.offsets, expected.data.offsets);
    return isSame ? undefined : "other labels";
  }
  const width = elementCount(actual.dims.slice(1));
  for (let index = 0; index < actual.data.length; index += 1) {
    const a = actual.data[index] ?? 0;
    const b = expected.data[index] ?? 0;
    if (a !== b && !isNear(Number(a), Number(b), bound)) {
      return `row ${Math.floor(index / width)}: ${a}, not ${b}`;
    }
  }
  return undefined;
}

function isNear(a: number, b: number, bound: number): boolean {
  return Number.isNaN(a) ? Number.isNaN(b) : Math.abs(a - b) <= bound * Math.max(1, Math.abs(b));
}

function isSameBytes(a: Uint8Array | Uint32Array, b: Uint8Array | Uint32Array): boolean {
  return a.length === b.length && a.every((value, index) => value === b[index]);
}

/** The compiled trees and ONNX Runtime give different scores for the same row. */
export class Mismatch extends Error {}
