import { describe, expect, test } from "vitest";
import { modelUri } from "#src/spec/model-spec.js";
import { load, minimalSpec, specRefusal } from "../support/spec.js";

const served = (keys: string, more = ""): string =>
  minimalSpec.replace(
    "  path: model.onnx\n",
    `  server: { protocol: v2, url: "http://triton:8000", name: churn${keys} }\n${more}`,
  );

describe("model.server", () => {
  test("model.server has defaults for its timeout and concurrency", () => {
    const { model } = load(served(""));
    expect(model).toMatchObject({
      server: { protocol: "v2", url: "http://triton:8000", name: "churn", timeout: 60, concurrency: "auto" },
    });
    expect(modelUri(model)).toBe("v2:churn");
  });

  test.each([
    ["both path and server", served("", "  path: model.onnx\n")],
    ["neither path nor server", minimalSpec.replace("  path: model.onnx\n", "  cast: lossy\n")],
    ["a key of model files beside a server", served("", "  region: eu-west-1\n")],
    ["a digest beside a server", served("", `  sha256: ${"a".repeat(64)}\n`)],
    ["a protocol that is not implemented", served("").replace("protocol: v2", "protocol: openai")],
    ["a key that is not implemented", served(", transport: online")],
    ["a list of URLs", served("").replace('"http://triton:8000"', '["http://a:1", "http://b:1"]')],
    ["a URL with a password", served("").replace("http://", "http://me:s3cret@")],
    ["a name with a slash", served("").replace("churn", "a/b")],
    ["a version that is no text", served(", version: 7")],
    ["no concurrency", served(", concurrency: 0")],
  ])("a spec with %s is refused", (_what, text) => {
    const refusal = specRefusal(text);
    expect(refusal).not.toContain("s3cret");
    expect(refusal).toMatchSnapshot();
  });

  test("a token that is wrong is not shown", () => {
    expect(specRefusal(served(", token: [s3cret]"))).not.toContain("s3cret");
  });
});
