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

  test.each([[[]], [[null, 2, 3]]])("outputs of shape %j are refused", (shape) => {
    expect(refused(scalar(...shape))).toMatch(
      /^64 CONTRACT\n.*output `t` is float32 \[.*\]; \[N\], \[N,1\] and \[N,K\] are supported\n/,
    );
  });

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
    expect(refused({ ...withOutput(wide, named), outputs: { a: "y[0]" } })).toContain(
      "model.outputs.a names `y[0]`, which is an output and also an element of output `y`",
    );
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

  test("an element beyond the width of an output is refused", () => {
    expect(refused({ outputs: { score: "probabilities[2]" } })).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: model.outputs.score names \`probabilities[2]\`, but a row has 2 values

        model inputs:                    columns of in/a.parquet:
          features  float32 [N,3]          id      int64
        model outputs:                     age     int32
          label          int64 [N]         amount  decimal(10,2)
          probabilities  float32 [N,2]     city    utf8
                                           tags    MAP(VARCHAR, INTEGER)
                                           rate    float64

      hint: elements count from 0 to 1"
    `);
    expect(refused({ outputs: { score: "label[1]" } })).toContain("names `label[1]`, but a row has 1 value\n");
  });

  test("any element of an output of unknown width is accepted", () => {
    const given = withOutput(tensor("p", "float32", null, null));
    expect(bind({ ...given, outputs: { s: "p[99]" } }).outputs).toMatchObject([{ kind: "element", element: 99 }]);
  });

  test("an output that the model lacks is refused", () => {
    expect(refused({ outputs: { score: "probabilites[1]" } })).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: model.outputs.score names \`probabilites\`, which is no output of the model; did you mean \`probabilities\`?

        model inputs:                    columns of in/a.parquet:
          features  float32 [N,3]          id      int64
        model outputs:                     age     int32
          label          int64 [N]         amount  decimal(10,2)
          probabilities  float32 [N,2]     city    utf8
                                           tags    MAP(VARCHAR, INTEGER)
                                           rate    float64

      hint: its outputs are label, probabilities"
    `);
  });

  test("the message about an output that is a map says how to export it", () => {
    const given = withOutput(tensor("output_label", "int64", null), tensor("output_probability", undefined));
    expect(refused({ ...given, outputs: { p: "output_probability[1]" } })).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: output \`output_probability\` is a sequence or map, not a tensor

        model inputs:                           columns of in/a.parquet:
          features  float32 [N,3]                 id      int64
        model outputs:                            age     int32
          output_label        int64 [N]           amount  decimal(10,2)
          output_probability  sequence or map     city    utf8
                                                  tags    MAP(VARCHAR, INTEGER)
                                                  rate    float64

      hint: export the model with zipmap=False (skl2onnx: options={'zipmap': False}), or take the ZipMap out of the file, as docs/models.md shows"
    `);
    expect(refused({ ...withOutput(tensor("output_probability", undefined)), outputs: undefined })).toContain(
      "the model has no tensor output",
    );
  });

  test("outputs of every supported type are accepted, float16 as float32 and strings as text, and those of other ONNX types are refused", () => {
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
    for (const type of ["bfloat16", "complex64", "constructor"]) {
      expect(refused({ ...withOutput(tensor("t", type, null)), outputs: undefined })).toContain(
        `output \`t\` is ${type} [N]; ${type} is not supported\n`,
      );
    }
  });

  test("outputs whose own names are no column names need a name in the spec", () => {
    expect(
      refused({ ...withOutput(tensor("StatefulPartitionedCall:0", "float32", null, 1)), outputs: undefined }),
    ).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: output \`StatefulPartitionedCall:0\` is no name for a column

        model inputs:                                columns of in/a.parquet:
          features  float32 [N,3]                      id      int64
        model outputs:                                 age     int32
          StatefulPartitionedCall:0  float32 [N,1]     amount  decimal(10,2)
                                                       city    utf8
                                                       tags    MAP(VARCHAR, INTEGER)
                                                       rate    float64

      hint: name it under model.outputs, such as \`score: StatefulPartitionedCall:0\`"
    `);
  });

  test("an output may not have the name of a carried column, ignoring case", () => {
    expect(refused({ ...withOutput(tensor("ID", "float32", null, 1)), outputs: undefined })).toMatchInlineSnapshot(`
      "64 CONTRACT
      binding models/churn.onnx to the columns of in/a.parquet: output column \`ID\` comes twice (case does not count)

        model inputs:               columns of in/a.parquet:
          features  float32 [N,3]     id      int64
        model outputs:                age     int32
          ID  float32 [N,1]           amount  decimal(10,2)
                                      city    utf8
                                      tags    MAP(VARCHAR, INTEGER)
                                      rate    float64

      hint: give the prediction another name under model.outputs"
    `);
  });

  test("two outputs may not have the same name, ignoring case", () => {
    const given = withOutput(tensor("score", "float32", null, 1), tensor("Score", "float32", null, 1));
    expect(refused({ ...given, outputs: undefined })).toContain("output column `Score` comes twice");
  });
});
