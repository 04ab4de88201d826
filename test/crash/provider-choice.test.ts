import { readFileSync } from "node:fs";
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, test, vi } from "vitest";
import { openJob } from "#src/app/job-context.js";
import { openProviderCache } from "#src/app/providers/provider-cache.js";
import { thisMachine } from "#src/engine/devices/machine.js";
import type { ProviderMeasurements } from "#src/scoring/provider-trials.js";
import { type CliOptions, runCli, type RunningCli } from "../support/cli.js";
import { expectFinished } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { scratchFolder, type SpecOverrides, writeSpec } from "../support/job.js";
import { faultsAtAnyMoment, partNames } from "../support/output.js";
import { findSoftwareGpu } from "../support/swiftshader.js";
import { torture } from "../support/torture.js";
import { until } from "../support/waiting.js";
import { fixtureNamed } from "../support/world.js";

const gpu = findSoftwareGpu();
const env = gpu.missing === undefined ? gpu.env : {};
const slowCpu = fileURLToPath(new URL("../support/slow-cpu.mjs", import.meta.url));
const fixture = fixtureNamed("diabetes-mlp");
const commitRows = 64;
const auto: SpecOverrides = { commit_rows: commitRows, engine: { providers: "auto", batch_size: 16 } };

afterEach(() => {
  vi.unstubAllEnvs();
});

interface Summary {
  readonly status: string;
  readonly provider: string;
  readonly spans_resumed: number;
  readonly provider_choice: { readonly provider: string; readonly measured_at: string | null };
}

/** The processes that a process has started and that have not ended. */
function childrenOf({ pid: parent }: RunningCli): string[] {
  const pids = readFileSync(`/proc/${parent}/task/${parent}/children`, "utf8").split(" ");
  return pids.filter((pid) => pid !== "" && isRunning(pid));
}

function isRunning(pid: string): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return !/^ [ZX]/.test(stat.slice(stat.lastIndexOf(")") + 1));
  } catch {
    return false; // it is gone
  }
}

async function run(
  spec: string,
  { args = [], ...options }: CliOptions & { readonly args?: readonly string[] },
): Promise<{ code: number | null; signal: NodeJS.Signals | null; stderr: string; summary: Summary | undefined }> {
  const { stdout, ...ran } = await runCli(["run", spec, "--json", ...args], options);
  const [last = ""] = stdout.trim().split("\n").slice(-1);
  return { ...ran, summary: last === "" ? undefined : (JSON.parse(last) as Summary) };
}

/** Keeps measurements for the job of a spec, as an earlier run of it would have. */
async function keepMeasured(specPath: string, found: ProviderMeasurements, cache: string): Promise<void> {
  for (const [name, value] of Object.entries({ ...env, XDG_CACHE_HOME: cache })) {
    vi.stubEnv(name, value);
  }
  await using job = await openJob(specPath, { param: [] });
  const { sha256 } = (await job.resolveModel()).model;
  await openProviderCache(job.spec, { modelSha256: sha256, machine: thisMachine() }).write(found);
}

const measured: ProviderMeasurements = {
  measuredAt: "2026-01-01T00:00:00.000Z",
  speeds: [
    { provider: "cpu", rowsPerSecond: 1, startSeconds: 1 },
    { provider: "webgpu", rowsPerSecond: 1000, startSeconds: 1 },
  ],
  leftOut: [],
};

/** Runs a job, and stops it with a signal as soon as a condition holds. */
async function stopWhen(
  spec: string,
  {
    signal,
    when,
    onStop,
    ...options
  }: CliOptions & {
    readonly signal: NodeJS.Signals;
    readonly when: () => Promise<boolean>;
    readonly onStop?: (child: RunningCli) => void;
  },
): Promise<string> {
  const stopped = await run(spec, {
    ...options,
    onStart: (child) => {
      const stop = async (): Promise<void> => {
        await until(when);
        onStop?.(child);
        child.kill(signal);
      };
      void stop();
    },
  });
  const how = signal === "SIGKILL" ? stopped.signal : stopped.code;
  expect(how, stopped.stderr).toBe(signal === "SIGKILL" ? signal : 143);
  return stopped.stderr;
}

describe.skipIf(gpu.missing !== undefined)(
  `providers: auto with a GPU in software${gpu.missing === undefined ? "" : ` (skipped: ${gpu.missing})`}`,
  () => {
    // In torture: SwiftShader starts three times. run/webgpu always kills, app/providers/provider-trials always reuses.
    test.runIf(torture)(
      "a killed run with providers: auto is resumed by two workers on what was measured before",
      {
        timeout: 120_000,
      },
      async () => {
        await using scratch = await scratchFolder();
        const [cache, out] = [join(scratch.path, "cache"), join(scratch.path, "out")];
        const spec = await writeSpec(scratch.path, fixture, auto);
        const golden = await goldenRows(fixture);
        await keepMeasured(spec, measured, cache);
        const options = { env: { ...env, XDG_CACHE_HOME: cache } };

        const when = async (): Promise<boolean> => (await partNames(out)).length > 0;
        expect(await stopWhen(spec, { ...options, signal: "SIGKILL", when })).toContain("scoring on webgpu: ");
        expect(await faultsAtAnyMoment(out, { golden, commitRows })).toEqual([]);
        const committed = (await partNames(out)).length;

        const workers = ["0/2", "1/2"].map((worker) => run(spec, { ...options, args: ["--worker", worker] }));
        const ended = await Promise.all(workers);
        for (const { code, stderr, summary } of ended) {
          expect([code, summary], stderr).toMatchObject([
            0,
            { provider: "webgpu", provider_choice: { provider: "webgpu", measured_at: measured.measuredAt } },
          ]);
          expect(stderr).not.toContain("measuring");
        }
        expect(Math.max(...ended.map(({ summary }) => summary?.spans_resumed ?? 0))).toBeGreaterThanOrEqual(committed);
        await expectFinished(out, { golden });
      },
    );

    test.each(["SIGKILL", "SIGTERM"] as const)(
      "a run stopped by %s while it measures providers leaves no process, no file, and no measurement",
      { timeout: 120_000 },
      async (signal) => {
        await using scratch = await scratchFolder();
        const [cache, temporary] = [join(scratch.path, "cache"), join(scratch.path, "tmp")];
        await mkdir(temporary);
        const spec = await writeSpec(scratch.path, fixture, auto);
        const slow = { NODE_OPTIONS: `--import=${slowCpu}`, SLOW_CPU_MS: "350" };
        let measuring: readonly string[] = [];
        await stopWhen(spec, {
          env: { ...env, ...slow, XDG_CACHE_HOME: cache, TMPDIR: temporary },
          signal,
          when: async () => (await readdir(temporary, { recursive: true })).length > 1,
          onStop: (child) => {
            measuring = childrenOf(child);
          },
        });
        expect(measuring).toHaveLength(1);
        await until(() => !measuring.some(isRunning));
        expect(await readdir(temporary)).toEqual([]);
        expect((await readdir(cache, { recursive: true })).filter((name) => name.includes("providers"))).toEqual([]);
        expect(await partNames(join(scratch.path, "out"))).toEqual([]);
      },
    );
  },
);
