import { describe, expect, test } from "vitest";
import { modelUri } from "#src/job/jobfile/model-spec.js";
import { load, minimalSpec, specRefusal } from "../../support/spec.js";

const served = (keys: string, more = ""): string =>
  minimalSpec.replace(
    "  path: model.onnx\n",
    `  server: { protocol: v2, url: "http://triton:8000", name: churn${keys} }\n${more}`,
  );

const v1 = (keys: string): string => served(keys).replace("protocol: v2", "protocol: v1");

const ofJson = "path: /predict, signature: { inputs: { x: float32 }, outputs: { y: int64 } }";
const json = (keys: string, place = `, ${ofJson}`): string =>
  served("").replace("protocol: v2", "protocol: json").replace(", name: churn", `${place}${keys}`);

describe("model.server", () => {
  test("a model of protocol json is named by the path of its predictions", () => {
    expect(modelUri(load(json(', request: { rows: { x: "{{x}}" } }')).model)).toBe("json:/predict");
  });

  test("model.server.signature is read as tensors, and model.server.response as a path", () => {
    const signature =
      'signature: { inputs: { x: "float32[10]", id: int64 }, outputs: { y: "float64[]", label: string } }';
    const { model } = load(v1(`, ${signature}, response: "data[0].scores"`));
    expect(model.server).toMatchObject({
      response: ["data", 0, "scores"],
      signature: {
        inputs: [
          { name: "x", dtype: "float32", shape: [null, 10] },
          { name: "id", dtype: "int64", shape: [null] },
        ],
        outputs: [
          { name: "y", dtype: "float64", shape: [null, null] },
          { name: "label", dtype: "string", shape: [null] },
        ],
      },
    });
    expect(load(v1(", response: .")).model.server?.response).toEqual([]);
    expect(modelUri(model)).toBe("v1:churn");
  });

  test("model.server has defaults for its timeout and concurrency", () => {
    const { model } = load(served(""));
    expect(model).toMatchObject({
      server: { protocol: "v2", url: ["http://triton:8000"], name: "churn", concurrency: "auto" },
    });
    expect(modelUri(model)).toBe("v2:churn");
  });

  test.each([
    ["both path and server", served("", "  path: model.onnx\n")],
    ["neither path nor server", minimalSpec.replace("  path: model.onnx\n", "  cast: lossy\n")],
    ["a key of model files beside a server", served("", "  region: eu-west-1\n")],
    ["a digest beside a server", served("", `  sha256: ${"a".repeat(64)}\n`)],
    ["a protocol that is not implemented", served("").replace("protocol: v2", "protocol: grpc")],
    ["a key that is not implemented", served(", compression: gzip")],
    [
      "a password in a list of URLs",
      served("").replace('"http://triton:8000"', '["http://a:1", "http://me:s3cret@b:1"]'),
    ],
    ["an empty list of URLs", served("").replace('"http://triton:8000"', "[]")],
    ["a certificate without its key", served(", tls: { cert: client.pem }")],
    ["a URL with a password", served("").replace("http://", "http://me:s3cret@")],
    ["a name with a slash", served("").replace("churn", "a/b")],
    ["a version that is no text", served(", version: 7")],
    ["no concurrency", served(", concurrency: 0")],
    [
      "a signature for a protocol with metadata",
      served(", signature: { inputs: { x: float32 }, outputs: { y: int64 } }"),
    ],
    ["a signature of an unknown type", v1(", signature: { inputs: { x: float }, outputs: { y: int64 } }")],
    ["a signature without outputs", v1(", signature: { inputs: { x: float32 }, outputs: {} }")],
    ["a response that is no path", v1(", response: 'a b'")],
    ["a split data frame for v1", v1(", request: dataframe_split")],
    ["a path for a named model", served(", path: /predict")],
    ["no name", served("").replace(", name: churn", "")],
    ["json without path and signature", json("", "")],
    ["json with a name", json(", name: churn")],
    ["a template without placeholder", json(", request: { rows: 3 }")],
    ["a template with an unknown placeholder", json(', request: { rows: "{{row}}" }')],
    ["a template with a placeholder as a key", json(', request: { "{{x}}": 3 }')],
    ["a header that requests have anyway", json(", headers: { Content-Length: s3cret }")],
    ["a header twice", json(", token: s3cret, headers: { Authorization: s3cret }")],
    ["auth: bearer without a token", served(", auth: bearer")],
    ["auth: sigv4 for a protocol that asks for metadata", served(", auth: sigv4")],
    ["auth: sigv4 with a token", json(", auth: sigv4, token: s3cret")],
    ["a header of two lines", json(', headers: { api-key: "s3cret\\nb" }')],
    ["a header that is a mapping", json(", headers: { api-key: { a: s3cret } }")],
  ])("a spec with %s is refused", (_what, text) => {
    const refusal = specRefusal(text);
    expect(refusal).not.toContain("s3cret");
    expect(refusal).toMatchSnapshot();
  });

  test("a token that is wrong is not shown", () => {
    expect(specRefusal(served(", token: [s3cret]"))).not.toContain("s3cret");
  });
});
