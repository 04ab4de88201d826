import { describe, expect, test } from "vitest";
import { encodeTexts, type NamedTensor } from "#src/columnar/tensor.js";
import { type RequestTemplate, templateRequest } from "#src/engine/served/rows/request.js";

const matrix: NamedTensor = { name: "x", dtype: "float32", dims: [2, 2], data: Float32Array.of(1, 2, 3, 4.5) };
const age: NamedTensor = { name: "age", dtype: "int64", dims: [2], data: BigInt64Array.of(7n, 2n ** 63n - 1n) };
const sex: NamedTensor = { name: "sex", dtype: "string", dims: [2], data: encodeTexts(['f "{{age}}"', "m"]) };

function textOf(template: RequestTemplate, inputs: readonly NamedTensor[]): string {
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
  test.each<[string, RequestTemplate, readonly NamedTensor[], string]>([
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
