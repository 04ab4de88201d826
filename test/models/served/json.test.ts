import { describe, expect, test } from "vitest";
import { decodeTexts, encodeTexts, type NamedTensor, type Tensor, type TensorSignature } from "#src/columns/tensor.js";
import { json, type JsonLayout } from "#src/models/served/json.js";
import type { Protocol } from "#src/models/served/protocol.js";

function templateRequest(
  request: JsonLayout["request"],
  inputs: readonly NamedTensor[],
): ReturnType<Protocol["encode"]> {
  const served = { version: undefined, isVersionInPath: false, isBinary: false, mostRows: undefined };
  const signature = { inputs: [], outputs: [] };
  const layout: JsonLayout = { request, response: [], signature };
  return json("json", layout).encode({ id: "1", inputs, outputs: [] }, { ...served, signature });
}

const matrix: NamedTensor = { name: "x", dtype: "float32", dims: [2, 2], data: Float32Array.of(1, 2, 3, 4.5) };
const age: NamedTensor = { name: "age", dtype: "int64", dims: [2], data: BigInt64Array.of(7n, 2n ** 63n - 1n) };
const sex: NamedTensor = { name: "sex", dtype: "string", dims: [2], data: encodeTexts(['f "{{age}}"', "m"]) };

function textOf(template: JsonLayout["request"], inputs: readonly NamedTensor[]): string {
  const encoded = templateRequest(template, inputs);
  if ("unfit" in encoded) {
    throw new Error(`${encoded.unfit} does not fit`);
  }
  const body = Buffer.concat(encoded.body);
  expect(encoded.headers).toEqual({ "content-type": "application/json", "content-length": String(body.length) });
  return body.toString("utf8");
}

const zeros: NamedTensor = { name: "x", dtype: "float64", dims: [2], data: Float64Array.of(-0, 0) };
const large = "9223372036854775807";
const quoted = String.raw`"f \"{{age}}\""`;

describe("a request in JSON", () => {
  test.each<[string, JsonLayout["request"], readonly NamedTensor[], string]>([
    ["instances of one input", { instances: "{{instances}}" }, [matrix], '{"instances":[[1,2],[3,4.5]]}'],
    [
      "instances of several inputs",
      { instances: "{{instances}}" },
      [age, sex],
      `{"instances":[{"age":7,"sex":${quoted}},{"age":${large},"sex":"m"}]}`,
    ],
    [
      "records of one input",
      { dataframe_records: "{{records}}" },
      [age],
      `{"dataframe_records":[{"age":7},{"age":${large}}]}`,
    ],
    ["negative zeros", { inputs: "{{inputs}}" }, [zeros], '{"inputs":[-0.0,0]}'],
    ["inputs of one input", { inputs: "{{inputs}}" }, [matrix], '{"inputs":[[1,2],[3,4.5]]}'],
    [
      "inputs of several inputs",
      { inputs: "{{inputs}}" },
      [age, sex],
      `{"inputs":{"age":[7,${large}],"sex":[${quoted},"m"]}}`,
    ],
    [
      "a split data frame",
      { dataframe_split: "{{dataframe_split}}" },
      [age, sex],
      `{"dataframe_split":{"columns":["age","sex"],"data":[[7,${quoted}],[${large},"m"]]}}`,
    ],
    [
      "a template with names of inputs and values of its own",
      { a: { ages: "{{age}}" }, top: 3, note: "x {{age}}" },
      [age, sex],
      `{"a":{"ages":[7,${large}]},"top":3,"note":"x {{age}}"}`,
    ],
  ])("a request with %s has the values of each row", (_what, template, inputs, text) => {
    expect(textOf(template, inputs)).toBe(text);
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY])(
    "a request with %s is not made, since JSON has no such number",
    (value) => {
      const inputs: readonly NamedTensor[] = [age, { ...matrix, data: Float32Array.of(1, 2, 3, value) }];
      expect(templateRequest({ instances: "{{instances}}" }, inputs)).toEqual({ unfit: "x" });
    },
  );
});

const score: TensorSignature = { name: "score", dtype: "float32", shape: [null] };
const constructor: TensorSignature = { name: "constructor", dtype: "float32", shape: [null] };
const label: TensorSignature = { name: "label", dtype: "string", shape: [null] };
const classes: TensorSignature = { name: "classes", dtype: "float64", shape: [null, null] };

function read(
  text: string | Buffer,
  outputs: readonly TensorSignature[],
  path: JsonLayout["response"] = ["predictions"],
): Tensor[] {
  const body = new Uint8Array(Buffer.from(text as string));
  const protocol = json("json", { request: {}, response: path, signature: undefined });
  return [...protocol.decode({ headers: new Headers(), body }, { outputs, rows: 2 }).outputs];
}

const plain = (tensor: Tensor): unknown => (tensor.dtype === "string" ? decodeTexts(tensor.data) : [...tensor.data]);

describe("predictions in JSON", () => {
  test.each<[string, string, JsonLayout["response"]]>([
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
