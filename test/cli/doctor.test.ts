import { existsSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type Diagnosis, doctorText, openTinyModel, tryProvider } from "#src/cli/commands/doctor.js";
import { JobError } from "#src/base/errors.js";
import { runHere } from "../support/cli.js";
import { scratch, scratchFolder, type SpecOverrides, writeSpec } from "../support/job.js";
import { writeModel } from "../support/onnx.js";
import { runSpec } from "../support/score.js";
import { noGpu } from "../support/swiftshader.js";
import { fixtureNamed } from "../support/world.js";
import { servedJob } from "../support/served-job.js";

// The npm package onnxruntime-node has no CUDA files, and its install script is not run: cuda and tensorrt are missing.

/** Its batch is fixed: doctor measures its speed at one size only. */
const diabetes = fixtureNamed("diabetes-mlp-batch32");

async function withSpec<T>(
  engine: object,
  work: (spec: string, folder: string) => Promise<T>,
  overrides: SpecOverrides = {},
): Promise<T> {
  await using folder = await scratchFolder();
  return await work(await writeSpec(folder.path, diabetes, { engine, ...overrides }), folder.path);
}

describe("doctor", () => {
  test("doctor without a spec checks what a GPU needs, tries the CPU, and exits with 0", async () => {
    const { code, stdout, stderr } = await runHere(["doctor", "--json"], { env: noGpu });
    expect([code, stderr]).toEqual([0, ""]);
    const found = JSON.parse(stdout) as Record<string, unknown>;
    expect(found).toMatchObject({ asked: ["cpu"], runs_on: "cpu" });
    expect(found["parts"]).toMatchObject([
      { name: "Node", state: "ok", found: expect.stringContaining(process.versions.node) as string },
      { name: "onnxruntime-node", state: "ok" },
      { name: "DuckDB", state: "ok", found: expect.stringMatching(/^\d/) as string },
      { name: "tokenizers", state: "ok", found: expect.stringMatching(/^\d/) as string },
      { name: "locale en_US.UTF-8", state: expect.stringMatching(/^(ok|optional)$/) as string },
      {
        name: "provider library",
        state: "missing",
        found: expect.stringContaining(" (the npm package does not have them)") as string,
        remedy: expect.stringContaining("docs/gpu.md") as string,
      },
      { name: "NVIDIA driver" },
      { name: "CUDA", state: "unknown" },
      { name: "cuDNN" },
      { name: "GPUs" },
      { name: "WebGPU", state: "ok" },
      { name: "Vulkan loader" },
      { name: "Vulkan drivers", state: "missing", found: expect.stringContaining("/nowhere/icd.json") as string },
    ]);
    expect(found["trials"]).toMatchObject([{ provider: "cpu", state: "ok", operators: { cpu: 2 }, fault: null }]);
  });

  test.runIf(process.platform === "linux")("doctor finds the locale of text models where LOCPATH has it", async () => {
    await mkdir(join(scratch.path, "en_US.utf8"));
    const { stdout } = await runHere(["doctor", "--json"], { env: { ...noGpu, LOCPATH: `/nowhere:${scratch.path}` } });
    const { parts } = JSON.parse(stdout) as { parts: object[] };
    expect(parts).toContainEqual(
      expect.objectContaining({ name: "locale en_US.UTF-8", state: "ok", found: scratch.path }),
    );
  });

  test("doctor says that a provider's part is missing if another provider does without it", async () => {
    await withSpec({ providers: ["webgpu", "cuda", "cpu"] }, async (spec) => {
      const env = { ...noGpu, CUDA_VISIBLE_DEVICES: "-1" };
      const { stdout } = await runHere(["doctor", spec, "--json"], { env });
      const { parts } = JSON.parse(stdout) as { parts: object[] };
      expect(parts.filter((part) => "name" in part && part.name === "GPUs")).toMatchObject([{ state: "missing" }]);
    });
  });

  test("doctor tells what computes the trees of the spec's model in long runs", async () => {
    const told: string[] = [];
    for (const trees of ["auto", "onnxruntime"]) {
      const spec = await writeSpec(scratch.path, fixtureNamed("wine-forest"), { engine: { trees } });
      told.push((await runHere(["doctor", spec])).stdout);
    }
    expect(told).toEqual([expect.stringMatching(/ ms; trees: compiled\n/), expect.not.stringContaining("trees:")]);
  });

  test("doctor measures the spec's model on blank rows, by batch size and threads", async () => {
    const anyBatch = await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"));
    const { stdout } = await runHere(["doctor", anyBatch], { env: noGpu });
    expect(stdout).toMatch(/^ {2}batch_size( +\d+ x \d+){1,2}\n +64( +[\d,]+){1,2}\n[^]*\n +16,384( +[\d,]+){1,2}\n/m);
    const { speeds } = JSON.parse((await runHere(["doctor", anyBatch, "--json"], { env: noGpu })).stdout) as {
      speeds: Record<string, number>[];
    };
    expect([...new Set(speeds.map(({ batch_size }) => batch_size))]).toEqual([64, 256, 1024, 4096, 16_384]);
    expect(speeds.every(({ rows_per_second: rate = 0 }) => rate > 0)).toBe(true);
    const fixed = await writeSpec(scratch.path, fixtureNamed("diabetes-mlp-batch32"));
    expect((await runHere(["doctor", fixed], { env: noGpu })).stdout).toMatch(
      /\n {2}batch_size .*\n +32 +[\d,]+.*\n(?! +\d)/,
    );
    const anyLength = await writeSpec(scratch.path, fixtureNamed("sentences-mean"));
    const unmeasured = await runHere(["doctor", anyLength], { env: noGpu });
    expect([unmeasured.code, unmeasured.stdout]).toEqual([0, expect.not.stringContaining("Rows/s")]);
  });

  test("doctor says which provider a run with providers: auto takes", async () => {
    await withSpec({ providers: "auto" }, async (spec) => {
      const { code, stdout } = await runHere(["doctor", spec, "--json"], { env: noGpu });
      expect([code, JSON.parse(stdout)]).toMatchObject([0, { asked: ["cpu"], runs_on: "cpu" }]);
    });
  });

  test("doctor tries the spec's model, and exits with 64 when its providers cannot run", async () => {
    await withSpec({ providers: ["tensorrt", "cuda"] }, async (spec) => {
      const { code, stdout, stderr } = await runHere(["doctor", spec]);
      expect(code).toBe(64);
      expect(stdout).toMatch(
        /^ {2}tensorrt +missing +\S.*\n {2}cuda +missing +\S.*\n {2}cpu +ok +\S.*; operators: \d+ on cpu;/m,
      );
      expect(stdout).toContain("diabetes-mlp-batch32.onnx, on each provider alone:");
      expect(stdout).toMatch(
        /^A run with providers \[tensorrt, cuda\] would end with 64\.\n\n.*\nTo do:\n {2}provider library: /s,
      );
      expect(stderr).toMatch(
        /^error: checking for tensorrt, cuda: provider library: libonnxruntime_providers_shared\.so, /,
      );
    });
  });

  test("doctor exits with 0 when cpu is listed after a missing provider, and says where a run scores", async () => {
    await withSpec(
      { providers: ["cuda", "cpu"] },
      async (spec) => {
        const { code, stdout } = await runHere(["doctor", spec]);
        expect([code, stdout.split("\n")[0]]).toEqual([0, "A run scores on cpu."]);
      },
      { input: { path: "nowhere/*.parquet" } }, // it needs no shard
    );
  });

  test("doctor refuses a model that cannot be loaded", async () => {
    await withSpec(
      {},
      async (spec) => {
        const { code, stderr } = await runHere(["doctor", spec]);
        expect([code, stderr]).toEqual([64, expect.stringContaining("there is no such file")]);
      },
      { model: { path: "no.onnx" } },
    );
  });

  test("doctor exits with 75 when its batch finds no memory on the provider that a run would score on", async () => {
    const path = join(scratch.path, "terabyte.onnx");
    await writeModel(path, {
      inputs: [{ name: "x", dtype: "float32", shape: ["N", 4] }],
      outputs: [{ name: "y", dtype: "float32", shape: ["N", 4] }],
      nodes: [
        { op: "Shape", from: ["x"], to: "shape" },
        { op: "Cast", from: ["thousands"], to: "times", attributes: { to: 7 } },
        { op: "Mul", from: ["shape", "times"], to: "large" },
        { op: "ConstantOfShape", from: ["large"], to: "zeros" },
        { op: "ReduceMax", from: ["zeros"], to: "largest" },
        { op: "Add", from: ["x", "largest"], to: "y" },
      ],
      constants: [{ name: "thousands", values: [2 ** 20, 2 ** 20] }],
    });
    await withSpec(
      {},
      async (spec) => {
        const { code, stdout, stderr } = await runHere(["doctor", spec]);
        expect([code, stderr]).toEqual([
          75,
          expect.stringMatching(
            /^error: scoring on cpu: there is no memory for a batch of one row: Failed to allocate memory for requested buffer of size \d+\n/,
          ),
        ]);
        expect(stdout).toMatch(/^ {2}cpu +failed +\S/m);
        expect(stdout.split("\n")[0]).toBe("A run with providers [cpu] would end with 75.");
      },
      { model: { path } },
    );
  });

  test("doctor reports a temporary error of loading the model as a finding, and ends at once with any other error", async () => {
    await using tiny = await openTinyModel();
    const options = { deviceId: 0, trees: "auto" } as const;
    const temporary = new JobError("DISK", "loading model tiny.onnx: EIO");
    const final = new JobError("MODEL_CHANGED", "loading model tiny.onnx: it was written to");
    const failing = (refusal: JobError): typeof tiny => ({ ...tiny, check: () => Promise.reject(refusal) });

    expect(await tryProvider("cpu", failing(temporary), options)).toEqual({
      provider: "cpu",
      state: "failed",
      operators: {},
      ms: undefined,
      fault: temporary.message,
      error: temporary,
    });
    await expect(tryProvider("cpu", failing(final), options)).rejects.toBe(final);
  });

  test("doctor says when a provider runs none of the model's operators", () => {
    const cpu = { provider: "cpu", state: "ok", operators: { cpu: 9 }, ms: 1, fault: undefined } as const;
    const idle = { provider: "cuda", state: "idle", operators: { cpu: 9 }, ms: 2.25, fault: undefined } as const;
    const found: Diagnosis = {
      program: "1.0.0",
      platform: "linux x64",
      asked: ["cuda"],
      parts: [{ name: "GPUs", state: "ok", found: "NVIDIA L4", remedy: "none" }],
      trials: [idle, cpu],
      model: "forest.onnx",
      speeds: [],
      outcome: "cuda",
    };
    expect(`\n${doctorText(found).join("\n")}\n`).toMatchInlineSnapshot(`
      "
      A run scores on cuda, which leaves all of this model to the CPU.

      infer-batch 1.0.0, linux x64
        GPUs  ok  NVIDIA L4

      Two batches of one row through forest.onnx, on each provider alone:
        cuda  idle  operators: 9 on cpu; 2.3 ms
        cpu   ok    operators: 9 on cpu; 1.0 ms
      "
    `);
  });

  test("doctor's built-in model is valid", async () => {
    const path = join(scratch.path, "tiny.onnx");
    await writeModel(path, {
      inputs: [{ name: "x", dtype: "float32", shape: ["N", 4] }],
      outputs: [{ name: "y", dtype: "float32", shape: ["N", "M"] }],
      nodes: [
        { op: "Transpose", from: ["x"], to: "t" },
        { op: "MatMul", from: ["x", "t"], to: "m" },
        { op: "Relu", from: ["m"], to: "y" },
      ],
    });
    await using tiny = await openTinyModel();
    expect(await readFile(tiny.path)).toEqual(await readFile(path));
  });
});

describe("a run whose provider this machine cannot run", () => {
  test("a run whose provider this machine cannot run exits with 64 before anything is written, naming what is missing", async () => {
    await withSpec({ providers: ["cuda"] }, async (spec, folder) => {
      const { code, stderr } = await runSpec(spec);
      expect(code).toBe(64);
      expect(stderr).toMatch(
        /error: opening execution provider cuda: provider library: libonnxruntime_providers_shared\.so/,
      );
      expect(stderr).toContain("`infer-batch doctor` tells what to do");
      expect(existsSync(join(folder, "out"))).toBe(false);
    });
  });

  test("a run with a missing provider goes on when cpu is listed, with a warning, a field, a metric and a line on the page", async () => {
    const report = { metrics: "run.prom", html: "run.html" };
    await withSpec(
      { providers: ["tensorrt", "cuda", "cpu"] },
      async (spec, folder) => {
        const { code, stdout, stderr } = await runSpec(spec);
        expect(code).toBe(0);
        expect(stderr.match(/WARN: NOT ON .*/g)).toEqual([
          expect.stringMatching(/^WARN: NOT ON TENSORRT, on cuda, cpu instead: opening execution provider tensorrt: /),
          expect.stringMatching(/^WARN: NOT ON CUDA, on cpu instead: opening execution provider cuda: /),
        ]);
        expect(JSON.parse(stdout)).toMatchObject({ provider: "cpu", providers_missing: ["tensorrt", "cuda"] });
        const text = async (name: string): Promise<string> => await readFile(join(folder, name), "utf8");
        expect(JSON.parse(await text("out/_manifest.json"))).toMatchObject({
          attempt: { provider: "cpu", providers_missing: ["tensorrt", "cuda"] },
        });
        expect(await text("run.prom")).toContain(
          'infer_batch_provider_missing{batch_job="diabetes-mlp-batch32",worker="0",provider="cuda"} 1\n',
        );
        expect(await text("run.html")).toContain("<td>no tensorrt, no cuda, cpu</td>");
      },
      { report },
    );
  });

  test("a run whose provider this machine cannot run can be validated, and planned with --provider cpu", async () => {
    await withSpec({ providers: ["cuda"], device_id: 7 }, async (spec) => {
      expect((await runHere(["validate", spec])).code).toBe(0);
      expect((await runHere(["plan", spec])).code).toBe(64);
      expect((await runHere(["plan", spec, "--provider", "cpu"])).code).toBe(0);
    });
  });
});

interface Found {
  readonly model: string;
  readonly servers: readonly { readonly url: string; readonly state: string; readonly found: string }[];
  readonly signature: { readonly inputs: readonly object[] } | null;
  readonly batches: readonly { readonly rows: number }[];
  readonly requests: readonly { readonly in_flight: number }[];
  readonly server_statistics: object | null;
}

describe("doctor for a model on servers", () => {
  test("doctor shows each server, the signature, the times of batches and the throughput of requests at once", async () => {
    await using job = await servedJob({ copies: 2, maxBatchSize: 300, versions: ["7"], hasStatistics: true });
    await job.others[0]?.[Symbol.asyncDispose]();

    const [shown, json] = [await runHere(["doctor", job.spec]), await runHere(["doctor", job.spec, "--json"])];

    expect([shown.code, json.code], shown.stderr).toEqual([0, 0]);
    expect(shown.stdout).toMatch(/^1 of 2 servers ready\.\n/);
    expect(shown.stdout).toMatch(/http:\S+ +ready +version 7\n/);
    expect(shown.stdout).toMatch(/http:\S+ +fails +asking for m on http:\S+: ECONNREFUSED/);
    expect(shown.stdout).toMatch(/input +features +float32 \[N,10\]/);
    expect(shown.stdout).toMatch(/in flight +rows\/s/);
    expect(shown.stdout).toContain(
      "the server's own statistics: a request waits 2 ms and is computed in 5 ms; an execution has 2 requests",
    );
    const found = JSON.parse(json.stdout) as Found;
    expect(found.servers.map(({ state }) => state)).toEqual(["ready", "fails"]);
    expect(found.signature?.inputs).toEqual([{ name: "features", dtype: "float32", shape: [null, 10] }]);
    expect(found.batches.map(({ rows }) => rows)).toEqual([1, 16, 64, 256]);
    expect(found.requests[0]).toMatchObject({ in_flight: 1 });
    expect(found.server_statistics).toEqual({ queue_ms: 2, compute_ms: 5, requests_joined: 2 });
  });

  test("doctor ends with 75 if no server answers, and with 64 if the server does not have the model", async () => {
    await using job = await servedJob();
    await job.rewrite({ model: { server: { protocol: "v2", url: job.server.url, name: "other" } } });
    const unknown = await runHere(["doctor", job.spec]);
    await job.server[Symbol.asyncDispose]();
    const away = await runHere(["doctor", job.spec]);

    expect(unknown, unknown.stderr).toMatchObject({ code: 64 });
    expect(unknown.stdout).toContain("is not found");
    expect(away, away.stderr).toMatchObject({ code: 75 });
    expect(away.stdout).toContain("fails");
  });

  test("doctor says that a model refuses blank rows, and measures nothing then", async () => {
    await using job = await servedJob();
    job.server.misbehave = () => ({ status: 400, said: "zero is no age" });
    const shown = await runHere(["doctor", job.spec]);
    expect(shown, shown.stderr).toMatchObject({ code: 0 });
    expect(shown.stdout).toContain("no more rows: the server answered 400: zero is no age");
    expect(shown.stdout).not.toContain("own statistics");
  });
});
