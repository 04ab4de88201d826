import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type CliResult, expectEnd, runCli, type RunningCli } from "../support/cli.js";
import { expectFinished } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { type Fixture, scratchFolder, type SpecOverrides, writeSpec } from "../support/job.js";
import { kserve, startKServe } from "../support/kserve.js";
import type { ModelServerProcess } from "../support/model-server.js";
import { partNames } from "../support/output.js";
import { rayServe, startRayServe } from "../support/ray-serve.js";
import { startTriton, triton } from "../support/triton.js";
import { onnxModel, type V2Model } from "../support/v2-server.js";
import { until } from "../support/waiting.js";
import { fixtureNamed } from "../support/world.js";

const fixtures = ["diabetes-mlp", "cancer-logistic", "penguins-pipeline"];

/** What KServe's V1 protocol does not tell about the fixtures. */
const signatures: Readonly<Record<string, object>> = {
  "diabetes-mlp": { inputs: { features: "float32[10]" }, outputs: { score: "float32" } },
  "cancer-logistic": { inputs: { input: "float32[30]" }, outputs: { label: "int64", probabilities: "float32[2]" } },
};

interface RealServer {
  readonly fixture: Fixture;
  readonly out: string;
  readonly server: ModelServerProcess;
  readonly spec: (server?: object, overrides?: SpecOverrides) => Promise<string>;
}

async function onServer(
  start: (folder: string, file: string, signature: V2Model) => Promise<ModelServerProcess>,
  name: string,
  work: (job: RealServer) => Promise<void>,
): Promise<void> {
  const fixture = fixtureNamed(name);
  await using scratch = await scratchFolder();
  await using signature = await onnxModel(fixture.model);
  const folder = join(scratch.path, "server");
  await mkdir(folder);
  await using server = await start(folder, fixture.model, signature);
  const spec: RealServer["spec"] = (keys = {}, overrides = {}) =>
    writeSpec(scratch.path, fixture, {
      commit_rows: 20,
      ...overrides,
      model: { path: undefined, server: { protocol: "v2", url: server.url, name: "m", ...keys } },
    });
  await work({ fixture, server, spec, out: join(scratch.path, "out") });
}

async function killWhen(
  child: RunningCli,
  isTime: () => Promise<boolean>,
  server: ModelServerProcess | undefined,
): Promise<void> {
  await until(isTime);
  await server?.stop();
  child.kill("SIGKILL");
}

/** Runs a job to its end, which is killed 10 times when more and more parts are there, and whose server is killed 3 times. */
async function runKilled({ fixture, server, out, spec }: RealServer, file: string): Promise<CliResult> {
  const spans = Math.ceil((await goldenRows(fixture)).length / 20);
  const parts = async (): Promise<number> => (await partNames(out).catch(() => [])).length;
  for (let kill = 1; kill <= 10; kill += 1) {
    const from = Math.floor((spans * (kill - 1)) / 11);
    const killed = await runCli(["run", file, "--no-progress"], {
      onStart: (child) => {
        void killWhen(child, async () => (await parts()) > from, kill % 3 === 0 ? server : undefined);
      },
    });
    expect(killed, killed.stderr).toMatchObject({ signal: "SIGKILL" });
    if (kill % 3 === 0) {
      server.start();
    }
  }
  return await runCli(["run", await spec({ concurrency: 2 }), "--no-progress"]);
}

describe.skipIf(triton.missing !== undefined)(`a model of a real Triton${triton.skipped}`, () => {
  test.each(fixtures)("a model of Triton gives the predictions of ONNX Runtime (%s)", async (name) => {
    await onServer(startTriton, name, async ({ fixture, spec, out }) => {
      await expectEnd(runCli(["run", await spec(), "--no-progress"]), 0);
      await expectFinished(out, { golden: await goldenRows(fixture) });
      const finished = await runCli(["plan", await spec()]);
      expect(finished.stdout, finished.stderr).toContain("v2:m → version 1");
    });
  });

  test("a run against Triton that is killed 10 times, with the server killed 3 times, has every row once", async () => {
    await onServer(startTriton, "cancer-logistic", async (job) => {
      const file = await job.spec({ concurrency: 2 }, { engine: { batch_size: 2 } });
      await expectEnd(runKilled(job, file), 0);
      await expectFinished(job.out, { golden: await goldenRows(job.fixture) });
    });
  }, 600_000);
});

describe.skipIf(kserve.missing !== undefined)(`a model of a real KServe${kserve.skipped}`, () => {
  test.each(fixtures)("a model of KServe gives the predictions of ONNX Runtime by v2 (%s)", async (name) => {
    await onServer(startKServe, name, async ({ fixture, spec, out }) => {
      await expectEnd(runCli(["run", await spec(), "--no-progress"]), 0);
      await expectFinished(out, { golden: await goldenRows(fixture) });
    });
  });

  test.each(Object.entries(signatures))(
    "a model of KServe gives the predictions of ONNX Runtime by v1 (%s)",
    async (name, signature) => {
      await onServer(startKServe, name, async ({ fixture, spec, out }) => {
        await expectEnd(runCli(["run", await spec({ protocol: "v1", signature }), "--no-progress"]), 0);
        await expectFinished(out, { golden: await goldenRows(fixture) });
      });
    },
  );

  test("a run against KServe that is killed 10 times, with the server killed 3 times, has every row once", async () => {
    await onServer(startKServe, "cancer-logistic", async (job) => {
      const file = await job.spec({ concurrency: 2 }, { engine: { batch_size: 2 } });
      await expectEnd(runKilled(job, file), 0);
      await expectFinished(job.out, { golden: await goldenRows(job.fixture) });
    });
  }, 600_000);
});

describe.skipIf(rayServe.missing !== undefined)(`a model of a real Ray Serve${rayServe.skipped}`, () => {
  const keysOf = (name: string): object => ({
    protocol: "json",
    name: undefined,
    path: "/m",
    signature: signatures[name],
  });

  test.each(Object.keys(signatures))(
    "a model of Ray Serve gives the predictions of ONNX Runtime (%s)",
    async (name) => {
      await onServer(startRayServe, name, async ({ fixture, spec, out }) => {
        await expectEnd(runCli(["run", await spec(keysOf(name)), "--no-progress"]), 0);
        await expectFinished(out, { golden: await goldenRows(fixture) });
      });
    },
  );

  test("a run against Ray Serve that is killed 10 times, with the server killed 3 times, has every row once", async () => {
    await onServer(startRayServe, "cancer-logistic", async (given) => {
      const keys = { ...keysOf("cancer-logistic"), concurrency: 2 };
      const job: RealServer = { ...given, spec: (more = {}, rest = {}) => given.spec({ ...keys, ...more }, rest) };
      await expectEnd(runKilled(job, await job.spec({}, { engine: { batch_size: 2 } })), 0);
      await expectFinished(job.out, { golden: await goldenRows(job.fixture) });
    });
  }, 600_000);
});
