import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { projectFolder, runHere } from "../../support/cli.js";
import { scratch } from "../../support/job.js";
import { onnxArtifacts, serveMlflow } from "../../support/mlflow.js";
import { useS3 } from "../../support/s3.js";

const s3 = useS3();
const fixtures = join(projectFolder, "fixtures/models/external-data");

s3.describe("a model of MLflow whose files are in S3", () => {
  test("is read from the store that MLFLOW_S3_ENDPOINT_URL names, with its external data", async () => {
    const bucket = await s3.server().createBucket();
    const model = await readFile(join(fixtures, "model.onnx"));
    for (const [path, bytes] of onnxArtifacts({ "model.onnx": model })) {
      await bucket.put(`mlflow/1/models/m-3/artifacts/${path}`, bytes);
    }
    const artifactUri = `s3://${bucket.name}/mlflow/1/models/m-3/artifacts`;
    await using mlflow = await serveMlflow({ "3": { files: new Map(), artifactUri } });
    const env = {
      ...s3.server().env(),
      AWS_ENDPOINT_URL_S3: undefined,
      MLFLOW_S3_ENDPOINT_URL: s3.server().endpoint,
      MLFLOW_TRACKING_URI: mlflow.url,
      XDG_CACHE_HOME: scratch.path,
    };
    const missing = await runHere(["inspect", "models:/churn/3"], { env });
    expect([missing.code, missing.stderr]).toMatchObject([
      64,
      expect.stringContaining(`loading model models:/churn/3: there is no object ${artifactUri}/weights.bin`),
    ]);
    await bucket.putFile("mlflow/1/models/m-3/artifacts/weights.bin", join(fixtures, "weights.bin"));
    const shown = await runHere(["inspect", "models:/churn/3"], { env });
    expect([shown.code, shown.stdout], shown.stderr).toMatchObject([
      0,
      expect.stringMatching(/^external +weights\.bin/m),
    ]);
  });
});
