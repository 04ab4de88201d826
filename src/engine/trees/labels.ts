import { encodeTexts, type Tensor } from "../../columnar/tensor.js";
import type { Classes } from "./ensemble.js";

/** The labels of rows, by their places among the classes. */
export function labelTensor(places: Uint32Array, labels: Classes["labels"]): Tensor {
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
