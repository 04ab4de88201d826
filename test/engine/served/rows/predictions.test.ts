import { describe, expect, test } from "vitest";
import { decodeTexts, type Tensor, type TensorSignature } from "#src/columnar/tensor.js";
import { readPredictions, type ResponsePath } from "#src/engine/served/rows/predictions.js";

const score: TensorSignature = { name: "score", dtype: "float32", shape: [null] };
const constructor: TensorSignature = { name: "constructor", dtype: "float32", shape: [null] };
const label: TensorSignature = { name: "label", dtype: "string", shape: [null] };
const classes: TensorSignature = { name: "classes", dtype: "float64", shape: [null, null] };

function read(
  text: string | Buffer,
  outputs: readonly TensorSignature[],
  path: ResponsePath = ["predictions"],
): Tensor[] {
  const body = new Uint8Array(Buffer.from(text as string));
  return [...readPredictions({ headers: new Headers(), body }, { outputs, rows: 2 }, path).outputs];
}

const plain = (tensor: Tensor): unknown => (tensor.dtype === "string" ? decodeTexts(tensor.data) : [...tensor.data]);

describe("predictions in JSON", () => {
  test.each<[string, string, ResponsePath]>([
    ["a list of values", '{"predictions":[0.5,2]}', ["predictions"]],
    ["a list of lists of one value", '{"predictions":[[0.5],[2]]}', ["predictions"]],
    ["a list of objects", '{"predictions":[{"score":0.5,"more":1},{"score":2}]}', ["predictions"]],
    ["an object of lists", '{"outputs":{"score":[0.5,2]}}', ["outputs"]],
    ["the whole answer", "[0.5,2]", []],
    ["a list below other keys", '{"data":[{"scores":[[0.5],[2]]}]}', ["data", 0, "scores"]],
  ])("predictions that are %s are read", (_what, text, path) => {
    expect(read(text, [score], path)).toEqual([{ dtype: "float32", dims: [2], data: Float32Array.of(0.5, 2) }]);
  });

  test("several outputs are read from objects, lists of any length as one width", () => {
    const found = read('{"predictions":[{"label":"a","classes":[1,2]},{"label":"b","classes":[3,4]}]}', [
      classes,
      label,
    ]);
    expect(found.map(({ dims }) => dims)).toEqual([[2, 2], [2]]);
    expect(found.map(plain)).toEqual([
      [1, 2, 3, 4],
      ["a", "b"],
    ]);
  });

  test.each<[string, string, readonly TensorSignature[], string]>([
    ["without the path", '{"error":"x"}', [score], "it has no `predictions`"],
    ["with a text at the path", '{"predictions":"x"}', [score], "the predictions are no list"],
    [
      "without an output that each object in JavaScript has",
      '{"predictions":[{"other":1}]}',
      [constructor],
      "is missing",
    ],
    ["without an output", '{"predictions":[{"other":1}]}', [score], "output `score` is missing"],
    ["with values for several outputs", '{"predictions":[1,2]}', [score, label], "no object with score, label"],
    ["with two values in a row of one", '{"predictions":[[1,2],[3,4]]}', [score], "2 values in a row, and 1 are due"],
    ["with rows of different widths", '{"predictions":[[1,2],[3]]}', [classes], "1 values in a row, and 2 are due"],
    ["with lists in lists", '{"predictions":[[[1,2]],[[3,4]]]}', [score], "lists within the lists"],
  ])("an answer %s is malformed", (_what, text, outputs, said) => {
    expect(() => read(text, outputs)).toThrow(
      expect.objectContaining({ name: "MalformedAnswer", message: expect.stringContaining(said) }),
    );
  });

  test.each([
    ["null", '{"predictions":[1,null]}', score],
    ["a text in place of a number", '{"predictions":[1,"b"]}', score],
    ["a number in place of a text", '{"predictions":["a",1]}', label],
    ["half of a character", '{"predictions":["a","\\ud83d"]}', label],
    ["bytes that are not UTF-8", Buffer.from('{"predictions":["a","\xe9"]}', "latin1"), label],
  ])("an answer with %s is about its rows", (_what, text, output) => {
    expect(() => read(text, [output])).toThrow(expect.objectContaining({ name: "UnfitValue" }));
  });
});
