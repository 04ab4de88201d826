import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { type CliOptions, type CliResult, expectEnd, runCli } from "../support/cli.js";
import { expectFinished } from "../support/crash.js";
import { differences, goldenRows } from "../support/golden.js";
import { fixtures, scratch, type SpecOverrides, writeSpec } from "../support/job.js";
import { writeModel } from "../support/onnx.js";
import { faultsAtAnyMoment, outputRows, partNames } from "../support/output.js";
import { writeRows } from "../support/parquet.js";
import { findSoftwareGpu, noGpu } from "../support/swiftshader.js";
import { torture } from "../support/torture.js";
import { fixtureNamed } from "../support/world.js";

const gpu = findSoftwareGpu();
const env = gpu.missing === undefined ? gpu.env : {};
const onWebGpu = { engine: { providers: ["webgpu"] } };

interface Ran extends Pick<CliResult, "code" | "signal" | "stderr"> {
  readonly summary: Readonly<Record<string, unknown>>;
}

/** Runs a spec in a process of its own: where libraries are found is fixed when a process starts. */
async function run(
  spec: string,
  { args = [], ...options }: CliOptions & { args?: readonly string[] } = {},
): Promise<Ran> {
  const ran = await runCli(["run", spec, "--json", ...args], { env, ...options });
  const [last = ""] = ran.stdout.trim().split("\n").slice(-1);
  return { ...ran, summary: last === "" ? {} : (JSON.parse(last) as Ran["summary"]) };
}

describe("a machine without a driver for WebGPU", () => {
  test("a machine without a driver for WebGPU ends a run with 64 before anything is written, and says what to install", async () => {
    const spec = await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"), onWebGpu);
    const { stderr } = await expectEnd(
      run(spec, { env: noGpu }),
      64,
      /^error: opening execution provider webgpu: .*Vulkan drivers: /,
      /hint: Vulkan (loader: .*apt-get install libvulkan1|drivers: unset the variable)/,
      "list cpu last: providers: [webgpu, cpu]",
    );
    expect(stderr).not.toMatch(/Warning:|onnxruntime_src/);
    expect(await partNames(join(scratch.path, "out"))).toEqual([]);
  });

  test("a run on a machine without a driver for WebGPU continues on the CPU if cpu is listed, and the log and the report say so", async () => {
    const fixture = fixtureNamed("diabetes-mlp");
    const spec = await writeSpec(scratch.path, fixture, { engine: { providers: ["webgpu", "cpu"] } });
    const { code, stderr, summary } = await run(spec, { env: noGpu });
    expect([code, summary], stderr).toMatchObject([0, { provider: "cpu", providers_missing: ["webgpu"] }]);
    expect(stderr).toMatch(/WARN: NOT ON WEBGPU, on cpu instead: /);
    await expectFinished(join(scratch.path, "out"), { golden: await goldenRows(fixture) });
  });

  test("a run with providers: auto scores on the CPU where no other provider has all of its parts, without a warning", async () => {
    const fixture = fixtureNamed("diabetes-mlp");
    const spec = await writeSpec(scratch.path, fixture, { engine: { providers: "auto" } });
    const { code, stderr, summary } = await run(spec, { env: noGpu });
    expect([code, summary], stderr).toMatchObject([0, { provider: "cpu", providers_missing: [] }]);
    expect(stderr).not.toContain("WARN");
    await expectFinished(join(scratch.path, "out"), { golden: await goldenRows(fixture) });
  });

  test.each(["coreml", "dml"])(
    "a machine without a driver for WebGPU ends with 64 for %s on Linux",
    async (provider) => {
      const spec = await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"), { engine: { providers: [provider] } });
      await expectEnd(run(spec), 64, "has none for linux x64");
    },
  );
});

/** A model of which WebGPU computes nothing; the others, of some of which it computes a part, in torture. Of diabetes-mlp it computes all. */
const everyTime = new Set(["cancer-logistic"]);
const none = new Set(["cancer-logistic", "wine-forest"]);

describe.skipIf(gpu.missing !== undefined)(
  `a GPU in software${gpu.missing === undefined ? "" : ` (skipped: ${gpu.missing})`}`,
  () => {
    test("is what a run with providers: auto takes", async () => {
      const fixture = fixtureNamed("diabetes-mlp");
      const spec = await writeSpec(scratch.path, fixture, { engine: { providers: "auto" } });
      const { code, stderr, summary } = await run(spec);
      expect([code, summary], stderr).toMatchObject([0, { provider: "webgpu" }]);
      expect(differences(await outputRows(join(scratch.path, "out")), await goldenRows(fixture))).toEqual([]);
    });

    test.each(fixtures.filter(({ name }) => torture || everyTime.has(name)))(
      "gives the predictions of Python on a CPU for $name",
      { timeout: 120_000 },
      async (fixture) => {
        const spec = await writeSpec(scratch.path, fixture, onWebGpu);
        const { code, stderr, summary } = await run(spec);
        const provider = none.has(fixture.name) ? "cpu" : "webgpu";
        expect([code, summary], stderr).toMatchObject([0, { status: "complete", provider, providers_missing: [] }]);
        expect(stderr.includes("webgpu has none of the operators of"), stderr).toBe(provider === "cpu");
        expect(differences(await outputRows(join(scratch.path, "out")), await goldenRows(fixture))).toEqual([]);
      },
    );

    test.runIf(torture)(
      "killed in the middle and resumed on a CPU, it gives each row once",
      { timeout: 120_000 },
      async () => {
        const fixture = fixtureNamed("diabetes-mlp");
        const overrides: SpecOverrides = { commit_rows: 16, engine: { providers: ["webgpu"], batch_size: 4 } };
        const spec = await writeSpec(scratch.path, fixture, overrides);
        const golden = await goldenRows(fixture);
        const out = join(scratch.path, "out");
        for (const signal of ["SIGKILL", "SIGTERM"] as const) {
          const before = (await partNames(out)).length;
          const stopped = await run(spec, {
            onStart: (child) => {
              const watch = async (): Promise<void> => {
                while ((await partNames(out)).length === before) {
                  await sleep(5);
                }
                child.kill(signal);
              };
              void watch();
            },
          });
          expect(signal === "SIGKILL" ? stopped.signal : stopped.code, stopped.stderr).toBe(
            signal === "SIGKILL" ? signal : 143,
          );
          expect(await faultsAtAnyMoment(out, { golden, commitRows: 16 })).toEqual([]);
        }
        await writeSpec(scratch.path, fixture, { ...overrides, engine: { providers: ["cpu"] } });
        expect((await run(spec)).summary).toMatchObject({ status: "complete", provider: "cpu" });
        await expectFinished(out, { golden });
      },
    );

    test.runIf(torture)("two workers share a run", { timeout: 120_000 }, async () => {
      const fixture = fixtureNamed("diabetes-mlp");
      const spec = await writeSpec(scratch.path, fixture, { commit_rows: 80, ...onWebGpu });
      const both = await Promise.all(["0/2", "1/2"].map((worker) => run(spec, { args: ["--worker", worker] })));
      expect(both.map(({ code, stderr }) => `${code} ${stderr.match(/error.*/)?.[0] ?? ""}`)).toEqual(["0 ", "0 "]);
      await expectFinished(join(scratch.path, "out"), { golden: await goldenRows(fixture) });
    });

    // Without a GPU, device-memory.test.ts has the same.
    test.runIf(torture)("a batch that does not fit is halved until it does", { timeout: 120_000 }, async () => {
      // y is one of 16,400 columns: 16,384 rows of them take 1.001 GiB, and a buffer of SwiftShader has at most 1 GiB.
      await writeModel(join(scratch.path, "wide.onnx"), {
        inputs: [{ name: "x", dtype: "float32", shape: ["N", 1] }],
        outputs: [{ name: "y", dtype: "float32", shape: ["N", 1] }],
        constants: [{ name: "w", values: Array.from({ length: 16_400 }, (_, index) => index), shape: [1, 16_400] }],
        nodes: [
          { op: "Add", from: ["x", "w"], to: "wide" },
          { op: "Slice", from: ["wide"], to: "y", attributes: { axes: [1], starts: [7], ends: [8] } },
        ],
        opset: 9,
      });
      const rows = 16_384;
      await writeRows(
        join(scratch.path, "in.parquet"),
        `SELECT i AS id, (i % 3)::FLOAT AS x FROM range(${rows}) AS t(i)`,
      );
      const spec = join(scratch.path, "job.yaml");
      await writeFile(
        spec,
        JSON.stringify({
          version: 1,
          name: "wide",
          input: { path: "in.parquet" },
          model: { path: "wide.onnx", inputs: { x: ["x"] } },
          engine: { providers: ["webgpu"], batch_size: 16_384 },
          output: { columns: ["id"], parquet: { path: "out" } },
        }),
      );
      const { code, stderr, summary } = await run(spec, { env: { ...env, XDG_CACHE_HOME: scratch.path } });
      expect([code, summary], stderr).toMatchObject([0, { rows_scored: rows, batch_size: 8192, provider: "webgpu" }]);
      expect(stderr).toMatch(/no memory for a batch of 16,384 rows on webgpu/);
      const found = await outputRows(join(scratch.path, "out"));
      expect(found.every(({ id, y }) => y === (Number(id) % 3) + 7)).toBe(true);
    });

    test("a type that the GPU does not have ends the run with 64, or leaves it to the CPU", {
      timeout: 60_000,
    }, async () => {
      const model = join(scratch.path, "half.onnx");
      await writeModel(model, {
        inputs: [{ name: "x", dtype: "float16", shape: ["N", 4] }],
        outputs: [{ name: "y", dtype: "float16", shape: ["N", 4] }],
        nodes: [{ op: "Relu", from: ["x"], to: "y" }],
      });
      await writeRows(join(scratch.path, "in.parquet"), "SELECT 1 AS id, 1.5 AS a, -2.0 AS b, 0.25 AS c, 4.0 AS d");
      const spec = join(scratch.path, "job.yaml");
      const write = (providers: readonly string[]): Promise<void> =>
        writeFile(
          spec,
          JSON.stringify({
            version: 1,
            name: "half",
            input: { path: "in.parquet" },
            model: { path: model, inputs: { x: ["a", "b", "c", "d"] }, outputs: { y: "y[0]" } },
            engine: { providers },
            output: { columns: ["id"], parquet: { path: "out" } },
          }),
        );
      await write(["webgpu"]);
      await expectEnd(run(spec), 64, "requires f16 but the device does not support it");
      await write(["webgpu", "cpu"]);
      const { code, summary, stderr } = await run(spec);
      expect([code, summary], stderr).toMatchObject([0, { provider: "cpu", providers_missing: ["webgpu"] }]);
      expect(await outputRows(join(scratch.path, "out"))).toMatchObject([{ id: 1, y: 1.5 }]);
    });

    test("doctor names the driver, and counts the operators on WebGPU", async () => {
      // The speed of a fixed batch is measured at one size.
      const spec = await writeSpec(scratch.path, fixtureNamed("diabetes-mlp-batch32"), onWebGpu);
      const { stdout } = await expectEnd(runCli(["doctor", spec, "--json"], { env }), 0);
      const found = JSON.parse(stdout) as {
        runs_on: string;
        trials: object[];
        parts: { name: string; state: string }[];
      };
      expect(found.runs_on).toBe("webgpu");
      expect(found.trials).toMatchObject([
        {
          provider: "webgpu",
          state: "ok",
          device: "SwiftShader Device (Subzero)",
          operators: { webgpu: expect.any(Number) },
        },
        {},
      ]);
      expect(found.parts).toContainEqual(expect.objectContaining({ name: "Vulkan drivers", state: "ok" }));
    });
  },
);
