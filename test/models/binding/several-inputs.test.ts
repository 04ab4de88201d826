import { describe, expect, test } from "vitest";
import type { ContractRequest } from "#src/models/binding/bind-contract.js";
import { numericTensorTypes } from "#src/columns/tensor.js";
import {
  bind,
  column,
  columns,
  featureNames,
  features,
  outputs,
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

  test("several inputs share their batch size", () => {
    expect(bind(batches(16, 16)).fixedBatchRows).toBe(16);
    expect(bind(batches(1, null)).fixedBatchRows).toBe(1);
    expect(bind(batches(null, null)).fixedBatchRows).toBeNull();
  });
});

describe("the model's input", () => {
  test("a model's input may have every numeric type", () => {
    for (const dtype of numericTensorTypes) {
      expect(bind(withInputs(tensor("features", dtype, null, 3))).inputs).toMatchObject([{ kind: "matrix", dtype }]);
    }
  });

  test("a model's input with a fixed batch size gives the size to the binding", () => {
    expect(bind(withInput(32, 3)).fixedBatchRows).toBe(32);
    expect(bind(withInput(1, 3)).fixedBatchRows).toBe(1);
    expect(bind().fixedBatchRows).toBeNull();
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
