import { describe, expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { servedJob } from "../support/served-job.js";
import { until } from "../support/waiting.js";

const columns = (outputs: Readonly<Record<string, unknown>>): unknown => ({ outputs });
const diabetes = { inputs: { features: "float32[10]" }, outputs: { score: "float32[1]" } };

describe("a model of TensorFlow Serving or KServe's V1 protocol", () => {
  test.each(["diabetes-mlp", "penguins-pipeline"])(
    "a model of TensorFlow Serving gives the predictions of ONNX Runtime (%s, instances)",
    async (fixture) => {
      const seen: { body?: unknown } = {};
      await using job = await servedJob({ fixture, rest: { kind: "tensorflow", versions: ["9", "10"], seen } });

      await job.runWhole({ status: "complete", provider: "v1" });
      expect(Object.keys(seen.body as object)).toEqual(["instances"]);
      expect([...new Set(job.server.paths.filter((path) => path.endsWith("predict")))]).toEqual([
        "POST /v1/models/m/versions/10:predict",
      ]);
    },
  );

  test("a model of TensorFlow Serving gives the predictions of ONNX Runtime (inputs, version in the spec)", async () => {
    await using job = await servedJob({
      fixture: "penguins-pipeline",
      rest: { kind: "tensorflow", versions: ["9", "10"], answer: (_rows, byOutput) => columns(byOutput) },
      keys: { request: "inputs", version: "9" },
    });

    await job.runWhole();
    expect(job.server.paths).toContain("POST /v1/models/m/versions/9:predict");
  });

  test("a model of KServe is bound by the signature in the spec", async () => {
    await using job = await servedJob({ rest: { kind: "kserve" }, keys: { signature: diabetes } });

    await job.runWhole();
    expect(job.server.paths).toContain("POST /v1/models/m:predict");
  });

  test("a model without metadata and signature is refused with an example of a signature", async () => {
    await using job = await servedJob({ rest: { kind: "kserve" } });
    await expectEnd(
      runHere(["validate", job.spec]),
      64,
      "the server has no metadata of the model",
      'features: "float32[10]"',
    );
  });

  test("a run waits for a model that is loading", async () => {
    await using job = await servedJob({ rest: { kind: "tensorflow" } });
    job.server.isReady = false;
    const running = job.run();
    await until(() => job.server.paths.length > 1);
    job.server.isReady = true;

    await expectEnd(running, 0, "the model is not ready");
  });
});
