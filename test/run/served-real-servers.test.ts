import { copyFile, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { type CliResult, expectEnd, projectFolder, runCli, type RunningCli } from "../support/cli.js";
import { expectFinished } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { type Fixture, scratch, scratchFolder, type SpecOverrides, writeSpec } from "../support/job.js";
import { type ModelServerProcess, startModelServer } from "../support/model-server.js";
import { partNames } from "../support/output.js";
import { pythonTools, pythonToolsOfTorture } from "../support/python-tools.js";
import { freePort } from "../support/s3-server.mjs";
import { torture } from "../support/torture.js";
import { onnxModel, type V2Model } from "../support/v2-server.js";
import { until } from "../support/waiting.js";
import { fixtureNamed } from "../support/world.js";

/** Triton's Python backend is linked to Debian's Python 3.11, so an interpreter of another make does not do. */
const python = "/usr/bin/python3.11";

/** Triton Inference Server itself, 2.51, as a package. */
const triton = pythonToolsOfTorture("triton", ["nvidia-pytriton==0.7.0", "onnxruntime==1.32.0"], python);

/** Starts a real Triton with a model of fixtures/models, called `m`. @param folder an empty folder */
async function startTriton(folder: string, file: string, signature: V2Model): Promise<ModelServerProcess> {
  const [port, grpcPort, metricsPort] = [await freePort(), await freePort(), await freePort()];
  const { inputs, outputs } = signature;
  const home = join(folder, "home");
  await mkdir(home, { recursive: true });
  const { PYTHONPATH: _, LD_LIBRARY_PATH: __, ...env } = process.env;
  return await startModelServer({
    name: "Triton",
    url: `http://127.0.0.1:${port}`,
    readyPath: "/v2/models/m/ready",
    folder,
    command: [
      join(triton.bin, "python"),
      fileURLToPath(new URL("../support/triton_server.py", import.meta.url)),
      join(projectFolder, "fixtures/models", file),
      JSON.stringify({ inputs, outputs }),
      JSON.stringify({ http_port: port, grpc_port: grpcPort, metrics_port: metricsPort }),
    ],
    env: { ...env, PYTHONUNBUFFERED: "1", PYTRITON_HOME: home },
  });
}

/** Ray Serve, whose deployments are Python code that reads and answers JSON. */
const rayServe = pythonToolsOfTorture("ray-serve", ["ray[serve]==2.60.0", "onnxruntime==1.32.0"]);

/** Starts a real Ray Serve with a model of fixtures/models at `/m`. @param folder an empty folder */
async function startRayServe(folder: string, file: string): Promise<ModelServerProcess> {
  const port = await freePort();
  return await startModelServer({
    name: "Ray Serve",
    url: `http://127.0.0.1:${port}`,
    readyPath: "/m",
    folder,
    command: [
      join(rayServe.bin, "python"),
      fileURLToPath(new URL("../support/ray_serve.py", import.meta.url)),
      join(projectFolder, "fixtures/models", file),
      String(port),
    ],
    env: { ...process.env, PYTHONUNBUFFERED: "1", RAY_USAGE_STATS_ENABLED: "0", RAY_AUTH_MODE: "disabled" },
  });
}

const mlserver = pythonTools("mlserver", ["mlserver==1.7.1", "onnxruntime==1.32.0"]);

/** MLServer speaks JSON only, and names a model's version in its answers alone. The model is called `m`. */
async function startMlServer(folder: string, file: string, signature: V2Model): Promise<ModelServerProcess> {
  await mkdir(join(folder, "m"));
  const script = fileURLToPath(new URL("../support/mlserver_model.py", import.meta.url));
  await copyFile(script, join(folder, "mlserver_model.py"));
  const [port, grpcPort, metricsPort] = [await freePort(), await freePort(), await freePort()];
  const settings = { host: "127.0.0.1", http_port: port, grpc_port: grpcPort, metrics_port: metricsPort };
  await writeFile(join(folder, "settings.json"), JSON.stringify({ ...settings, parallel_workers: 0, debug: false }));
  const { inputs, outputs } = signature;
  const model = { name: "m", implementation: "mlserver_model.Onnx", parameters: { version: "3" }, inputs, outputs };
  await writeFile(join(folder, "m", "model-settings.json"), JSON.stringify(model));
  return await startModelServer({
    name: "MLServer",
    url: `http://127.0.0.1:${port}`,
    readyPath: "/v2/health/ready",
    folder,
    command: [join(mlserver.bin, "mlserver"), "start", "."],
    env: { ...process.env, ONNX: join(projectFolder, "fixtures/models", file), PYTHONPATH: folder },
  });
}

/** KServe's own model server in Python. */
const kserve = pythonToolsOfTorture("kserve", ["kserve==0.21.0", "onnxruntime==1.32.0"]);

async function startKServe(folder: string, file: string, signature: V2Model): Promise<ModelServerProcess> {
  const [port, grpcPort] = [await freePort(), await freePort()];
  const { inputs, outputs } = signature;
  return await startModelServer({
    name: "KServe",
    url: `http://127.0.0.1:${port}`,
    readyPath: "/v2/models/m/ready",
    folder,
    command: [
      join(kserve.bin, "python"),
      fileURLToPath(new URL("../support/kserve_server.py", import.meta.url)),
      join(projectFolder, "fixtures/models", file),
      JSON.stringify({ inputs, outputs }),
      String(port),
      String(grpcPort),
    ],
    env: { ...process.env, PYTHONUNBUFFERED: "1" },
  });
}

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
  await using ownFolder = await scratchFolder();
  await using signature = await onnxModel(fixture.model);
  const folder = join(ownFolder.path, "server");
  await mkdir(folder);
  await using server = await start(folder, fixture.model, signature);
  const spec: RealServer["spec"] = (keys = {}, overrides = {}) =>
    writeSpec(ownFolder.path, fixture, {
      commit_rows: 20,
      ...overrides,
      model: { path: undefined, server: { protocol: "v2", url: server.url, name: "m", ...keys } },
    });
  await work({ fixture, server, spec, out: join(ownFolder.path, "out") });
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

describe.skipIf(mlserver.missing !== undefined)(`a model of a real MLServer${mlserver.skipped}`, () => {
  const kills = torture ? 3 : 0;

  test(`a model of MLServer, with texts, gives the predictions of ONNX Runtime (server killed ${kills} times)`, async () => {
    const fixture = fixtureNamed("penguins-pipeline");
    await using signature = await onnxModel(fixture.model);
    const folder = join(scratch.path, "server");
    await mkdir(folder);
    await using server = await startMlServer(folder, fixture.model, signature);
    const spec = await writeSpec(scratch.path, fixture, {
      commit_rows: 20,
      engine: { batch_size: 2 },
      model: { path: undefined, server: { protocol: "v2", url: server.url, name: "m", concurrency: 2 } },
    });
    const out = join(scratch.path, "out");
    const running = runCli(["run", spec, "--no-progress"]);
    for (let kill = 1; kill <= kills; kill += 1) {
      await until(async () => (await partNames(out).catch(() => [])).length >= 2 * kill);
      await server.stop();
      server.start();
    }

    const ended = await expectEnd(running, 0);
    expect(ended.stderr.includes("trying again")).toBe(kills > 0);
    await expectFinished(out, { golden: await goldenRows(fixture) });
    const finished = await runCli(["plan", spec]);
    expect(finished.stdout, finished.stderr).toContain("v2:m → version 3");
  }, 120_000);
});
