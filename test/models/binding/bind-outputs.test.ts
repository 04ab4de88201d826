import { describe, expect, test } from "vitest";
import type { ContractRequest } from "#src/models/binding/bind-contract.js";
import { unknownTraits } from "#src/models/binding/model-facts.js";
import { columnTypeOfTensor, type TensorType } from "#src/columns/tensor.js";
import { bind, refused, tensor, withOutput } from "../../support/contracts.js";

const scalar = (...shape: (number | null)[]): Partial<ContractRequest> => ({
  ...withOutput(tensor("t", "float32", ...shape)),
  outputs: undefined,
});

describe("outputs", () => {
  test("outputs are by default all tensors under their own names, without a ZipMap", () => {
    const given = withOutput(
      tensor("label", "int64", null),
      tensor("score", "float32", null, 1),
      tensor("map", undefined),
    );
    expect(bind({ ...given, outputs: undefined }).outputs).toEqual([
      { kind: "scalar", column: "label", tensor: "label", type: "int64" },
      { kind: "scalar", column: "score", tensor: "score", type: "float32" },
    ]);
  });

  test.each([[[null]], [[null, 1]], [[1]], [[32, 1]]])("outputs of shape %j have one value a row", (shape) => {
    expect(bind(scalar(...shape)).outputs).toEqual([{ kind: "scalar", column: "t", tensor: "t", type: "float32" }]);
  });

  test.each([[[null, 2]], [[null, 384]], [[32, 2]], [[null, 0]], [[null, null]]])(
    "outputs of shape %j have one list a row",
    (shape) => {
      expect(bind(scalar(...shape)).outputs).toEqual([
        { kind: "vector", column: "t", tensor: "t", type: { kind: "list", element: "float32" } },
      ]);
    },
  );

  test("the spec may pick single elements of an output", () => {
    expect(bind({ outputs: { a: "probabilities[0]", b: "probabilities[1]", c: "label[0]" } }).outputs).toEqual([
      { kind: "element", column: "a", tensor: "probabilities", element: 0, type: "float32" },
      { kind: "element", column: "b", tensor: "probabilities", element: 1, type: "float32" },
      { kind: "element", column: "c", tensor: "label", element: 0, type: "int64" },
    ]);
  });

  test("an output may be called as an element is, unless both are there", () => {
    const [named, wide] = [tensor("y[0]", "int64", null), tensor("y", "float32", null, 2)];
    expect(bind({ ...withOutput(named), outputs: { a: "y[0]" } }).outputs).toEqual([
      { kind: "scalar", column: "a", tensor: "y[0]", type: "int64" },
    ]);
    expect(bind({ ...withOutput(wide, named), outputs: { a: "y[1]", b: "y" } }).outputs).toMatchObject([
      { kind: "element", tensor: "y", element: 1 },
      { kind: "vector", tensor: "y" },
    ]);
  });

  test("the message about an output that is no tensor says what it is", () => {
    const traits = { ...unknownTraits, otherOutputs: [{ name: "s", type: "seq(tensor(float))" }] };
    for (const outputs of [{ a: "s" }, undefined]) {
      const said = refused({ ...withOutput(tensor("s", undefined)), traits, outputs });
      expect(said).toContain("hint: export the model with one tensor in its place");
      expect(said).not.toMatch(/zipmap/i);
    }
    expect(refused({ ...withOutput(tensor("s", undefined)), traits, outputs: { a: "s" } })).toContain(
      "output `s` is seq(tensor(float)), not a tensor",
    );
  });

  test("any element of an output of unknown width is accepted", () => {
    const given = withOutput(tensor("p", "float32", null, null));
    expect(bind({ ...given, outputs: { s: "p[99]" } }).outputs).toMatchObject([{ kind: "element", element: 99 }]);
  });

  test("outputs of every supported type are accepted, float16 as float32 and strings as text", () => {
    const types: TensorType[] = ["float32", "float64", "float16", "bool", "string"];
    const integers: TensorType[] = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"];
    for (const type of [...types, ...integers]) {
      const given = withOutput(tensor("t", type, null), tensor("v", type, null, 4));
      const expected = type === "float16" ? "float32" : type === "string" ? "utf8" : type;
      expect(columnTypeOfTensor(type)).toBe(expected);
      expect(bind({ ...given, outputs: { t: "t", v: "v", e: "v[3]" } }).outputs).toMatchObject([
        { kind: "scalar", type: expected },
        { kind: "vector", type: { kind: "list", element: expected } },
        { kind: "element", type: expected, element: 3 },
      ]);
    }
  });
});
