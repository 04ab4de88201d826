import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, test, vi } from "vitest";
import { openJob } from "#src/app/job-context.js";
import { openProviderTrials } from "#src/app/providers/provider-trials.js";
import type { RunReport } from "#src/report/report.js";
import { runJob } from "#src/run/run.js";
import { runCli } from "../../support/cli.js";
import { expectFinished } from "../../support/crash.js";
import { goldenRows } from "../../support/golden.js";
import { scratchFolder, type SpecOverrides, writeSpec } from "../../support/job.js";
import { findSoftwareGpu, noGpu } from "../../support/swiftshader.js";
import { torture } from "../../support/torture.js";
import { fixtureNamed } from "../../support/world.js";

const gpu = findSoftwareGpu();
const env = gpu.missing === undefined ? gpu.env : {};
const slowCpu = `--import=${fileURLToPath(new URL("../../support/slow-cpu.mjs", import.meta.url))}`;
const fixture = fixtureNamed("diabetes-mlp");

afterEach(() => {
  vi.unstubAllEnvs();
});

/** Scores a fixture in this process with providers: auto, as if every run was long; the trials are processes. */
async function scoreAuto(
  folder: string,
  { more = {}, overrides = {} }: { more?: Readonly<Record<string, string>>; overrides?: SpecOverrides } = {},
): Promise<RunReport> {
  for (const [name, value] of Object.entries({ ...env, ...more, XDG_CACHE_HOME: join(folder, "cache") })) {
    vi.stubEnv(name, value);
  }
  const specPath = await writeSpec(folder, fixture, { engine: { providers: "auto" }, ...overrides });
  await using job = await openJob(specPath, { param: [] });
  const { signal } = job;
  const limits = { cpuSeconds: 0, modelSeconds: 0 };
  const providerTrials = openProviderTrials(job.spec, { specPath, signal, targetSeconds: 0.1, limits });
  return await runJob({ ...job, providerTrials });
}

test("auto stays on the CPU on a machine without a driver for WebGPU", async () => {
  await using scratch = await scratchFolder();
  const { provider, providerChoice } = await scoreAuto(scratch.path, { more: noGpu });
  expect([provider, providerChoice?.why]).toEqual(["cpu", "this machine has the parts of no other provider"]);
});

describe.skipIf(gpu.missing !== undefined)(
  `a GPU in software${gpu.missing === undefined ? "" : ` (skipped: ${gpu.missing})`}`,
  () => {
    test("auto measures a GPU in software and the CPU, and chooses the CPU; the next run uses the same measurements", {
      timeout: 120_000,
    }, async () => {
      await using scratch = await scratchFolder();
      const { provider, providerChoice } = await scoreAuto(scratch.path);
      expect(provider).toBe("cpu");
      expect(providerChoice).toMatchObject({ leftOut: [], provider: "cpu" });
      expect(providerChoice?.speeds.map((speed) => speed.provider)).toEqual(["cpu", "webgpu"]);
      await expectFinished(join(scratch.path, "out"), { golden: await goldenRows(fixture) });

      const elsewhere = { parquet: { path: join(scratch.path, "again") } };
      const again = await scoreAuto(scratch.path, { overrides: { name: "another", output: elsewhere } });
      expect(again.providerChoice?.measuredAt).toBe(providerChoice?.measuredAt);
    });

    test("auto leaves out a GPU in software that has none of the model's operators, and gives the reason", {
      timeout: 120_000,
    }, async () => {
      await using scratch = await scratchFolder();
      const forest = fixtureNamed("wine-forest");
      const specPath = await writeSpec(scratch.path, forest, { engine: { providers: "auto" } });
      for (const [name, value] of Object.entries(env)) {
        vi.stubEnv(name, value);
      }
      await using job = await openJob(specPath, { param: [] });
      const { signal } = job;
      const trials = openProviderTrials(job.spec, { specPath, signal, targetSeconds: 0.1 });
      expect(await trials.measure("webgpu", 100)).toEqual({
        kind: "left_out",
        provider: "webgpu",
        reason: "it has none of the operators of the model, which cpu computes",
        isLasting: true,
      });
      expect(await trials.measure("dml", 100)).toMatchObject({
        reason: expect.stringContaining("onnxruntime-node has none for linux x64"),
        isLasting: true,
      });
    });

    test("auto chooses a GPU in software over a CPU that was made slow, in whole processes", {
      timeout: 300_000,
    }, async (context) => {
      context.skip(!torture, "the CPU has to need more than 30 s: npm run torture");
      await using scratch = await scratchFolder();
      const spec = await writeSpec(scratch.path, fixture, { engine: { providers: "auto", batch_size: 4 } });
      const slow = { ...env, NODE_OPTIONS: slowCpu, SLOW_CPU_MS: "350", XDG_CACHE_HOME: join(scratch.path, "cache") };
      const { code, stdout, stderr } = await runCli(["run", spec, "--json"], { env: slow });
      expect(code, stderr).toBe(0);
      const found = JSON.parse(stdout) as Readonly<Record<string, unknown>>;
      expect(found, stderr).toMatchObject({ provider: "webgpu", provider_choice: { provider: "webgpu" } });
      await expectFinished(join(scratch.path, "out"), { golden: await goldenRows(fixture) });
    });
  },
);
