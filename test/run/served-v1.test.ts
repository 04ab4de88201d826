import { describe, expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { expectFinished } from "../support/crash.js";
import { differences, goldenRows } from "../support/golden.js";
import { outputRows } from "../support/output.js";
import { reject, rejectLines } from "../support/rejects.js";
import { servedJob } from "../support/served-job.js";
import type { Misbehaviour, V2Request, V2Server } from "../support/v2-server.js";
import { until } from "../support/waiting.js";

const small = { engine: { batch_size: 10 } };
const columns = (outputs: Readonly<Record<string, unknown>>): unknown => ({ outputs });
const diabetes = { inputs: { features: "float32[10]" }, outputs: { score: "float32[1]" } };

const isBlank = ({ inputs }: V2Request): boolean =>
  [...(inputs[0]?.values ?? [])].every((value) => Number(value) === 0);

/** Lets blank rows through, so that faults meet rows of the input. */
const onRows =
  (decide: NonNullable<V2Server["misbehave"]>): V2Server["misbehave"] =>
  (request) =>
    isBlank(request) ? undefined : decide(request);

describe("a model of TensorFlow Serving or KServe's V1 protocol", () => {
  test.each(["diabetes-mlp", "penguins-pipeline"])(
    "a model of TensorFlow Serving gives the predictions of ONNX Runtime (%s, instances)",
    async (fixture) => {
      const seen: { body?: unknown } = {};
      await using job = await servedJob({ fixture, rest: { kind: "tensorflow", versions: ["9", "10"], seen } });

      const ended = await job.run();

      expect(ended, ended.stderr).toMatchObject({ code: 0, report: { status: "complete", provider: "v1" } });
      await expectFinished(job.out, { golden: await goldenRows(job.fixture) });
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

    await expectEnd(job.run(), 0);
    await expectFinished(job.out, { golden: await goldenRows(job.fixture) });
    expect(job.server.paths).toContain("POST /v1/models/m/versions/9:predict");
  });

  test("a model of KServe is bound by the signature in the spec", async () => {
    await using job = await servedJob({ rest: { kind: "kserve" }, keys: { signature: diabetes } });

    await expectEnd(job.run(), 0);
    await expectFinished(job.out, { golden: await goldenRows(job.fixture) });
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

  test.each<[string, Misbehaviour]>([
    ["is overloaded (503)", { status: 503 }],
    ["answers something that is not JSON", { text: "<html>" }],
  ])("a server that %s is asked again: every row once", async (_what, fault) => {
    await using job = await servedJob({ rest: { kind: "tensorflow" }, overrides: { ...small, ...reject } });
    let faults = 0;
    job.server.misbehave = onRows(() => {
      faults += 1;
      return faults <= 3 ? fault : undefined;
    });

    const ended = await job.run();

    expect(ended, ended.stderr).toMatchObject({ code: 0, report: { rows_rejected: 0 } });
    expect((ended.report["server"] as { retries: number }).retries).toBeGreaterThanOrEqual(1);
    await expectFinished(job.out, { golden: await goldenRows(job.fixture) });
  });

  test("a row that the model refuses (400) is found and rejected, all others are scored", async () => {
    await using job = await servedJob({ rest: { kind: "tensorflow" }, overrides: reject });
    let third: number | bigint | string | undefined;
    job.server.misbehave = onRows(({ inputs: [input] }) => {
      third ??= input?.values[2];
      return input?.values[2] === third ? { status: 400, said: "Tensor is out of range" } : undefined;
    });

    await expectEnd(job.run(), 0);
    const rejected = await rejectLines(job.out);
    expect(rejected[0]).toMatchObject({ row: 0, reason: "model_failed" });
    expect(JSON.stringify(rejected)).toContain("Tensor is out of range");
    const lost = new Set(rejected.map(({ row }) => row));
    const golden = (await goldenRows(job.fixture)).filter((_row, index) => !lost.has(index));
    expect(differences(await outputRows(job.out), golden)).toEqual([]);
  });

  test.each<[string, number, RegExp, Misbehaviour]>([
    ["no longer has the version", 66, /this run is scored with version 1/, { status: 404, said: "unknown" }],
    ["answers without predictions", 64, /it has no `predictions`/, { text: '{"outputs":[1]}' }],
    [
      "answers with fewer rows",
      64,
      /output `score` came as float32 \[1,1\] for a batch of/,
      {
        outputs: (all) =>
          all.map((one) => ({ ...one, shape: [1, 1], values: (one.values as Float32Array).slice(0, 1) })),
      },
    ],
  ])("a server that %s ends the run with %i", async (_what, code, said, fault) => {
    await using job = await servedJob({
      rest: { kind: "tensorflow" },
      overrides: { ...reject, retry: { max_seconds: 2 } },
    });
    job.server.misbehave = onRows(() => fault);

    await expectEnd(job.run(), code, said);
  });
});
