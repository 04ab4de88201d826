import { describe, expect, test } from "vitest";
import { modelUriProblem, parseHubUri, parseMlflowUri } from "#src/job/jobfile/uri.js";

describe("model.path", () => {
  test.each([
    ["hf://org/repo/model.onnx", { repo: "org/repo", revision: undefined, path: "model.onnx" }],
    ["hf://org/repo@v1.0/onnx/model.onnx", { repo: "org/repo", revision: "v1.0", path: "onnx/model.onnx" }],
    ["hf://org/repo@refs%2Fpr%2F1/m.onnx", { repo: "org/repo", revision: "refs/pr/1", path: "m.onnx" }],
  ])("%s names a repository, a revision and a file", (uri, parts) => {
    expect(modelUriProblem(uri)).toBeUndefined();
    expect(parseHubUri(uri)).toEqual(parts);
  });

  test.each([
    ["models:/churn@champion", { kind: "alias", name: "churn", alias: "champion" }],
    ["models:/churn model/7", { kind: "version", name: "churn model", version: "7" }],
    ["models:/churn/1.2.0", { kind: "version", name: "churn", version: "1.2.0" }],
    ["models:/churn/latest", { kind: "latest", name: "churn" }],
    ["models:/m-4bf86acf", { kind: "logged", id: "m-4bf86acf" }],
    ["runs:/4bf8/models/churn/", { kind: "run", runId: "4bf8", path: "models/churn" }],
  ])("%s names a model of MLflow", (uri, parts) => {
    expect(modelUriProblem(uri)).toBeUndefined();
    expect(parseMlflowUri(uri)).toEqual(parts);
  });

  test.each(["https://models.example.com/a/churn.onnx", "http://10.0.0.7:8080/m.onnx?version=3", "models/churn.onnx"])(
    "%s is taken",
    (path) => {
      expect(modelUriProblem(path)).toBeUndefined();
    },
  );

  test.each([
    "hf://org/repo",
    "hf://org/model.onnx",
    "hf://org/repo/../secret.onnx",
    "https://user:pass@models.example.com/churn.onnx",
    "https://store.example.com/churn.onnx?X-Amz-Signature=abc",
    "https://account.blob.core.windows.net/c/m.onnx?sv=2024&sig=abc",
    "https://",
    "models:/churn",
    "models:/churn/Production",
    "models:/main.ml.churn/7",
    "models://profile@databricks/churn/7",
    "runs:/r7",
    "runs:/r7/../secret",
    "azureml://registries/r/models/m/versions/1",
    "arn:aws:sagemaker:eu-west-1:1:model-package/m/1",
    "gcs://bucket/m.onnx",
    "s3a://bucket/m.onnx",
  ])("%s is refused, with what to write or do", (path) => {
    expect(modelUriProblem(path)).toMatchSnapshot();
  });
});
