import { describe, expect, test } from "vitest";
import type { ContractRequest } from "#src/models/binding/bind-contract.js";
import { numericTensorTypes } from "#src/columns/tensor.js";
import {
  bind,
  column,
  columns,
  featureNames,
  features,
  finding,
  outputs,
  refused,
  tensor,
  withInput,
  withInputs,
} from "../../support/contracts.js";

const batches = (a: number | null, b: number | null): Partial<ContractRequest> =>
  withInputs(tensor("age", "float32", a), tensor("rate", "float32", b));

describe("several inputs", () => {
  const two = withInputs(tensor("age", "float32", null, 1), tensor("rate", "float64", null));

  test("several inputs take one column each, by name", () => {
    expect(bind(two).inputs).toMatchObject([
      { input: "age", dtype: "float32", rank: 2, columns: [{ name: "age" }] },
      { input: "rate", dtype: "float64", rank: 1, columns: [{ name: "rate" }] },
    ]);
  });

  test("inputs that the spec does not list take the columns of their names", () => {
    expect(featureNames(bind({ ...two, inputs: { rate: ["amount"] } }))).toEqual(["age", "amount"]);
    expect(featureNames(bind({ ...two, inputs: { rate: ["age"], age: ["age"] } }))).toEqual(["age", "age"]);
  });

  test("several inputs may be matrices if the spec lists their columns", () => {
    const wide = withInputs(features, tensor("mask", "bool", null, 2));
    const inputs = { features: ["age", "amount", "rate"], mask: ["id", "age"] };
    expect(featureNames(bind({ ...wide, inputs }))).toEqual(["age", "amount", "rate", "id", "age"]);
  });

  test("several inputs are refused if one of them finds no column", () => {
    expect(refused(withInputs(features, tensor("rates", "float32", null)))).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: no column is called like input \`features\`

        model inputs:                    columns of in/a.parquet:
          features  float32 [N,3]          id      int64
          rates     float32 [N]            age     int32
        model outputs:                     amount  decimal(10,2)
          label          int64 [N]         city    utf8
          probabilities  float32 [N,2]     tags    MAP(VARCHAR, INTEGER)
                                           rate    float64

      hint: if earlier runs had it, the input is incomplete: write it again; else name its columns under model.inputs: { features: [column, …] }"
    `);
    expect(
      finding(refused(withInputs(tensor("age", "float32", null), tensor("rates", "float32", null)))),
    ).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: no column is called like input \`rates\`; did you mean \`rate\`?
      hint: name its columns under model.inputs: { rates: [column, …] }"
    `);
  });

  // An input [4] beside [N,4] is a constant for all rows: filled with a column, it would mix four rows.
  test.each([
    ["age", batches(16, null)],
    ["rate", batches(null, 16)],
  ])("a fixed first dimension of input %s alone is refused", (input, given) => {
    expect(finding(refused(given))).toContain(
      `64 CONTRACT
binding models/churn.onnx to the columns of in/a.parquet: input \`${input}\` is float32 [16]: its first dimension is fixed, and those of other inputs are not`,
    );
  });

  test("several inputs share their batch size", () => {
    expect(bind(batches(16, 16)).fixedBatchRows).toBe(16);
    expect(bind(batches(1, null)).fixedBatchRows).toBe(1);
    expect(bind(batches(null, null)).fixedBatchRows).toBeNull();
    expect(finding(refused(batches(16, 8)))).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: the model's inputs have different fixed batch sizes: 16, 8
      hint: export it with one batch dimension"
    `);
  });
});

describe("the model's input", () => {
  test("a model's input may have every numeric type", () => {
    for (const dtype of numericTensorTypes) {
      expect(bind(withInputs(tensor("features", dtype, null, 3))).inputs).toMatchObject([{ kind: "matrix", dtype }]);
    }
  });

  test.each([
    ["another type", tensor("features", "bfloat16", null, 3)],
    ["like something every object has", tensor("features", "constructor", null, 3)],
    ["three dimensions", tensor("features", "float32", null, 3, 4)],
    ["no dimension", tensor("features", "float32")],
    ["a sequence", tensor("features", undefined)],
  ])("a model's input is refused when it is %s", (_what, input) => {
    expect(refused({ signature: { inputs: [input], outputs } })).toMatch(
      /^64 CONTRACT\n.*input `features` is .*; \[N\] and \[N,F\] of numbers, bool or strings are supported\n/,
    );
  });

  test("a model without inputs is refused", () => {
    expect(finding(refused(withInputs()))).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: the model has no inputs
      hint: is this the right model?"
    `);
  });

  test("a spec that names an input that the model lacks is refused", () => {
    expect(finding(refused({ inputs: { feature: ["age", "amount", "rate"] } }))).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: model.inputs names \`feature\`, which is no input of the model; did you mean \`features\`?
      hint: its inputs are features"
    `);
  });

  test("a model's input with a fixed batch size gives the size to the binding", () => {
    expect(bind(withInput(32, 3)).fixedBatchRows).toBe(32);
    expect(bind(withInput(1, 3)).fixedBatchRows).toBe(1);
    expect(bind().fixedBatchRows).toBeNull();
  });

  // Cut into batches of no row, a run would never end.
  test("a model's input with a batch size of 0 is refused", () => {
    expect(refused(withInput(0, 3))).toMatch(/^64 CONTRACT/);
  });

  test("an input named like a property of every object does not count as listed", () => {
    const signature = { inputs: [tensor("toString", "float32", null, 3)], outputs };
    expect(featureNames(bind({ signature }))).toEqual(["age", "amount", "rate"]);
  });

  test("an input named like a property of every object does not count as listed in an empty mapping", () => {
    const signature = { inputs: [tensor("toString", "float32", null, 3)], outputs };
    expect(featureNames(bind({ signature, inputs: {} }))).toEqual(["age", "amount", "rate"]);
  });

  test("a wide input is not bound to the number column of its name", () => {
    const given = [...columns, column("features", "INTEGER", "int32")];
    expect(featureNames(bind({ columns: given, ...withInput(null, 4) }))).toEqual([
      "age",
      "amount",
      "rate",
      "features",
    ]);
  });
});
