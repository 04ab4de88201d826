import type { Contract } from "#src/models/binding/contract.js";
import { createSpanRows, type SpanRows } from "#src/flow/span.js";
import type { Tensor } from "#src/columns/tensor.js";
import { emptyContract, ref } from "./batches.js";

const contract: Contract = {
  ...emptyContract,
  passthrough: [{ column: "id", source: ref("id", "int64") }],
  outputs: [
    { kind: "scalar", column: "label", tensor: "label", type: "int64" },
    { kind: "scalar", column: "score", tensor: "score", type: "float64" },
    { kind: "element", column: "p2", tensor: "p", element: 2, type: "float32" },
  ],
};

const span = { rowStart: 100, rowEnd: 112 };

export function open(given: Contract = contract): SpanRows {
  return createSpanRows({
    contract: given,
    span,
    onFault: ({ reason, column, row, value }) => {
      throw new Error(`${reason}: ${column} of row ${row} is ${value}`);
    },
  });
}

/** What the model says of rows [from, to), padded to `packedRows`. */
export function predictions(from: number, to: number, packedRows = to - from): Map<string, Tensor> {
  const rows = Array.from({ length: packedRows }, (_, index) => (from + index < to ? from + index : Number.NaN));
  return new Map<string, Tensor>([
    [
      "label",
      {
        dtype: "int64",
        dims: [packedRows],
        data: BigInt64Array.from(rows, (row) => BigInt(Number.isNaN(row) ? -1 : row)),
      },
    ],
    ["score", { dtype: "float64", dims: [packedRows, 1], data: Float64Array.from(rows, (row) => row / 3) }],
    [
      "p",
      {
        dtype: "float32",
        dims: [packedRows, 3],
        data: Float32Array.from([...rows, ...rows, ...rows], (_, index) =>
          index % 3 === 2 ? (rows[Math.floor(index / 3)] as number) : Number.NaN,
        ),
      },
    ],
  ]);
}

export const float64 = (...dims: number[]): Tensor => ({
  dtype: "float64",
  dims,
  data: new Float64Array(dims.reduce((a, b) => a * b, 1)),
});

export const float32 = (...dims: number[]): Tensor => ({
  dtype: "float32",
  dims,
  data: new Float32Array(dims.reduce((a, b) => a * b, 1)),
});
