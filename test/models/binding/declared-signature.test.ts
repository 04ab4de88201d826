import { expect, test } from "vitest";
import { type DeclaredField, signatureDifferences } from "#src/models/binding/signatures.js";
import type { TensorSignature } from "#src/columns/tensor.js";

const tensor = (name: string | undefined, dtype: string, ...shape: (number | null)[]): DeclaredField => ({
  kind: "tensor",
  name,
  dtype,
  shape,
});
const column = (name: string): DeclaredField => ({ kind: "column", name });
const features: TensorSignature = { name: "features", dtype: "float32", shape: [null, 10] };
const score: TensorSignature = { name: "score", dtype: "float32", shape: [null, 1] };
const model = { inputs: [features], outputs: [{ name: "label", dtype: "int64", shape: [null] }, score] };

test.each<[string, readonly DeclaredField[], readonly DeclaredField[]]>([
  ["the same tensors", [tensor("features", "float32", null, 10)], [tensor("score", "float32", null, 1)]],
  ["tensors without names", [tensor(undefined, "float32", null, 10)], [tensor(undefined, "float32", null, 1)]],
  ["another batch dimension, and a length that may vary", [tensor("features", "float32", 32, null)], []],
  ["as many columns as the matrix has", Array.from({ length: 10 }, (_, index) => column(`f${index}`)), []],
  ["nothing", [], []],
])("no difference is found from %s", (_declared, inputs, outputs) => {
  expect(signatureDifferences({ inputs, outputs }, model)).toEqual([]);
});

test("each difference from a declared signature names the input or output", () => {
  const declared = {
    inputs: [tensor("features", "float64", null, 12), tensor("age", "int64", null, 1)],
    outputs: [tensor("score", "float32", null), tensor("proba", "float32", null, 2)],
  };
  expect(signatureDifferences(declared, model)).toEqual([
    "input `features` is float32 [N,10], declared as float64 [N,12]",
    "input `age` is declared, and the model has none",
    "output `score` is float32 [N,1], declared as float32 [N]",
    "output `proba` is declared, and the model has none",
  ]);
  expect(signatureDifferences({ inputs: [column("a"), column("b")], outputs: [] }, model)).toEqual([
    "2 columns are declared, input `features` takes 10",
  ]);
  const columns = { inputs: [{ ...score, name: "a" }, score], outputs: [] };
  expect(signatureDifferences({ inputs: [column("a"), column("b")], outputs: [] }, columns)).toEqual([
    "input `score` is not declared as a column",
  ]);
});
