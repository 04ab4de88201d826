import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { closeSync, existsSync, openSync, readFileSync, renameSync } from "node:fs";
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { buildOnce, cacheFolder } from "../support/build-once.mjs";
import { type CliResult, expectEnd, projectFolder, runCli, runHere } from "../support/cli.js";
import { expectFinished } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { commitOf, serveFiles, serveHub } from "../support/hub.js";
import { scratch, scratchFolder, writeSpec } from "../support/job.js";
import { type Mlflow, serveChurn } from "../support/mlflow.js";
import { outputRows } from "../support/output.js";
import { writeRows } from "../support/parquet.js";
import { pythonTools } from "../support/python-tools.js";
import { freePort } from "../support/s3-server.mjs";
import { latch } from "../support/waiting.js";
import { runWatched } from "../support/watched.js";
import { fixtureNamed } from "../support/world.js";

interface MlflowServer extends AsyncDisposable {
  /** The tracking URI. */
  readonly url: string;
  /** Calls the REST API below `api/2.0/mlflow/`. */
  call(method: string, path: string, body: object): Promise<void>;
  stop(): Promise<void>;
}

const mlflow = pythonTools("mlflow", ["mlflow==3.17.2", "onnx==1.23.2", "onnxruntime==1.32.0"]);
const seedPort = 15_940;

/** Registers the models once: MLflow's client takes seconds to load. @returns why there are none */
function seed(): { readonly folder: string; readonly missing: string | undefined } {
  const folder = cacheFolder("mlflow-3.17.2-seed-1");
  const made = join(folder, "data");
  if (mlflow.missing !== undefined || existsSync(made)) {
    return { folder: made, missing: mlflow.missing };
  }
  const missing = buildOnce(made, (making: string) => {
    const script = fileURLToPath(new URL("../support/mlflow_seed.py", import.meta.url));
    const model = join(projectFolder, "fixtures/models/diabetes-mlp.onnx");
    const args = [script, String(seedPort), making, model];
    const { status, stderr } = spawnSync(join(mlflow.bin, "python"), args, { encoding: "utf8" });
    if (status !== 0) {
      return `registering models with MLflow: ${stderr.slice(-300)}`;
    }
    renameSync(join(making, "data"), made);
    return undefined;
  });
  return { folder: made, missing };
}

const seeded = seed();
const missingMlflow = seeded.missing;
const skippedMlflow = missingMlflow === undefined ? "" : ` (skipped: ${missingMlflow.split("\n")[0]})`;

/** Starts a real MLflow server whose registry has two versions of `churn`. @param folder an empty folder */
async function startMlflow(folder: string): Promise<MlflowServer> {
  const port = await freePort();
  const data = join(folder, "data");
  await cp(seeded.folder, data, { recursive: true });
  const log = join(folder, "server.log");
  const output = openSync(log, "w");
  const app = ["-m", "uvicorn", "mlflow.server.fastapi_app:app", "--host", "127.0.0.1", "--port", String(port)];
  const child = spawn(join(mlflow.bin, "python"), app, {
    cwd: data,
    stdio: ["ignore", output, output],
    env: {
      ...process.env,
      MLFLOW_DISABLE_TELEMETRY: "true",
      DO_NOT_TRACK: "true",
      GIT_PYTHON_REFRESH: "quiet",
      // What `mlflow server` sets for this process, without loading MLflow twice.
      _MLFLOW_SERVER_FILE_STORE: `sqlite:///${data}/mlflow.db`,
      _MLFLOW_SERVER_ARTIFACT_DESTINATION: join(data, "artifacts"),
      _MLFLOW_SERVER_ARTIFACT_ROOT: "mlflow-artifacts:/",
      _MLFLOW_SERVER_SERVE_ARTIFACTS: "true",
    },
  });
  closeSync(output);
  const ended = new Promise((done) => child.once("close", done));
  const url = `http://127.0.0.1:${port}`;
  const stop = async (): Promise<void> => {
    child.kill("SIGKILL");
    await ended;
  };
  for (;;) {
    if (child.exitCode !== null) {
      throw new Error(`MLflow did not start: ${readFileSync(log, "utf8").slice(-2000)}`);
    }
    const answer = await fetch(`${url}/health`).catch(() => undefined);
    if (answer?.ok === true) {
      break;
    }
    await sleep(100);
  }
  return {
    url,
    async call(method, path, body) {
      const answer = await fetch(`${url}/api/2.0/mlflow/${path}`, {
        method,
        body: JSON.stringify(body),
        headers: { "content-type": "application/json" },
      });
      if (!answer.ok) {
        throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
      }
    },
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

const fixture = fixtureNamed("diabetes-mlp");
const rows = join(projectFolder, "fixtures/data/diabetes/*.parquet");
const predicted = join(projectFolder, "fixtures/golden/diabetes-mlp.parquet");

interface World extends AsyncDisposable {
  readonly mlflow: Mlflow;
  readonly out: string;
  readonly spec: (path?: string, checks?: object) => Promise<string>;
  readonly forgetModels: () => Promise<void>;
  readonly run: (args: readonly string[]) => Promise<CliResult>;
  /** Runs a command in a process of its own. @param machine has a cache of its own */
  readonly runApart: (args: readonly string[], machine: string) => Promise<CliResult>;
}

async function openWorld(): Promise<World> {
  const ownFolder = await scratchFolder();
  const registry = await serveChurn();
  const envOf = (cache: string): Record<string, string> => ({
    MLFLOW_TRACKING_URI: registry.url,
    XDG_CACHE_HOME: join(ownFolder.path, cache),
  });
  return {
    mlflow: registry,
    out: join(ownFolder.path, "out"),
    spec: (path = "models:/churn@champion", checks) =>
      writeSpec(ownFolder.path, fixture, {
        commit_rows: 80,
        retry: { max_seconds: 1 },
        model: { path },
        ...(checks && { checks }),
      }),
    forgetModels: () => rm(join(ownFolder.path, "cache"), { recursive: true }),
    run: (args) => runHere(args, { env: envOf("cache") }),
    runApart: (args, machine) => runCli(args, { env: envOf(machine) }),
    async [Symbol.asyncDispose]() {
      await registry[Symbol.asyncDispose]();
      await ownFolder[Symbol.asyncDispose]();
    },
  };
}

const modelOf = async (out: string): Promise<unknown> =>
  (JSON.parse(await readFile(join(out, "_manifest.json"), "utf8")) as { model: unknown }).model;

describe("the version of a model", () => {
  test("workers that plan at the same time while an alias moves score with the version of the stored plan", async () => {
    await using world = await openWorld();
    const { mlflow: registry } = world;
    const golden = join(world.out, "../golden.parquet");
    await writeRows(golden, `SELECT * FROM '${rows}' JOIN '${predicted}' USING (id) WHERE id < 40`);
    const spec = await world.spec(undefined, { golden: { path: golden, atol: 1e-4 } });
    const both = latch<void>();
    const answered = latch<void>();
    let asked = 0;
    registry.before = async (path) => {
      if (path === "registered-models/alias") {
        asked += 1;
        if (asked === 1) {
          await both.promise; // both workers have found no plan by then
        } else {
          both.resolve();
          await answered.promise;
          registry.aliases.set("champion", "2");
        }
      } else {
        answered.resolve();
      }
      return false;
    };
    const [one, other] = await Promise.all([
      world.runApart(["run", spec, "--worker", "0/2"], "machine-0"),
      world.runApart(["run", spec, "--worker", "1/2"], "machine-1"),
    ]);
    expect([one.code, other.code], `${one.stderr}${other.stderr}`).toEqual([0, 0]);
    const downloads = registry.requests.filter((request) => request.includes("get-download-uri")).toSorted();
    expect(new Set(downloads).size, "both versions were resolved").toBe(2);
    expect(downloads, "one worker fetched the version of the other's plan").toHaveLength(3);
    const checked = [...`${one.stderr}${other.stderr}`.matchAll(/predictions of 40 rows of .* are as expected/g)];
    expect(checked, "its golden rows were scored with that version, too").toHaveLength(3);
    await expectFinished(world.out, { golden: await goldenRows(fixture) });
  });

  test("of two workers that plan at the same time with different golden rows, the one whose plan is not stored ends with 66", async () => {
    await using world = await openWorld();
    const spec = await world.spec(undefined, { golden: { path: "golden.parquet", atol: 1e-3 } });
    const otherSpec = join(world.out, "../other/job.yaml");
    await mkdir(dirname(otherSpec));
    await writeFile(otherSpec, (await readFile(spec, "utf8")).replace('"path": "out"', `"path": "${world.out}"`));
    for (const [file, from] of [
      [spec, 0],
      [otherSpec, 10],
    ] as const) {
      const select = `SELECT * FROM '${rows}' JOIN '${predicted}' USING (id) WHERE id BETWEEN ${from} AND 40`;
      await writeRows(join(dirname(file), "golden.parquet"), select);
    }
    const both = latch<void>();
    let asked = 0;
    world.mlflow.before = async (path) => {
      if (path === "registered-models/alias") {
        asked += 1;
        if (asked === 2) {
          both.resolve();
        }
        await both.promise; // neither worker has found a plan by then
      }
      return false;
    };
    const ended = await Promise.all([
      world.runApart(["run", spec, "--worker", "0/2"], "machine-0"),
      world.runApart(["run", otherSpec, "--worker", "1/2"], "machine-1"),
    ]);
    const [winner, loser] = ended.toSorted((a, b) => Number(a.code) - Number(b.code));
    expect([winner?.code, loser?.code], ended.map(({ stderr }) => stderr).join("")).toEqual([0, 66]);
    expect(loser?.stderr).toMatch(
      /comparing golden\.parquet with the plan of this unfinished run: its sha256 is [0-9a-f]{64}, planned [0-9a-f]{64}/,
    );
  });

  test("a deleted planned version ends with 66, and --new-run uses the current version", async () => {
    await using world = await openWorld();
    const { mlflow: registry } = world;
    const spec = await world.spec();
    await expectEnd(world.run(["run", spec, "--worker", "0/2"]), 0);
    registry.aliases.set("champion", "2");
    registry.versions.delete("1");
    await world.forgetModels();

    const gone = await world.run(["run", spec, "--worker", "1/2"]);
    expect([gone.code, gone.stderr.replaceAll(registry.url, "URL").replaceAll(spec, "<spec>")]).toMatchSnapshot();
    await expectEnd(world.run(["run", spec, "--new-run"]), 0);
    expect(await modelOf(world.out)).toMatchObject({ uri: "models:/churn@champion", version: "2" });
    await expectFinished(world.out, { golden: await goldenRows(fixture) });
  });

  test("replaced artifacts of a planned version end with 66, and an unreachable registry with 75", async () => {
    await using world = await openWorld();
    const { mlflow: registry } = world;
    const spec = await world.spec();
    await expectEnd(world.run(["run", spec, "--worker", "0/2"]), 0);
    await world.forgetModels();
    const planned = registry.versions.get("1") ?? { files: new Map() };
    registry.versions.set("1", registry.versions.get("2") ?? planned);
    const replaced = await world.run(["run", spec, "--worker", "1/2"]);
    expect([replaced.code, replaced.stderr]).toMatchObject([
      66,
      expect.stringContaining("comparing models:/churn@champion with the plan of this unfinished run: its sha256 is"),
    ]);
    registry.versions.set("1", planned);
    await world.forgetModels();
    registry.before = (_path, response) => {
      response.destroy();
      return true;
    };
    await expectEnd(world.run(["run", spec, "--worker", "1/2"]), 75);
  });

  test("another URI in the spec ends with 66 without a request, even if it leads to the same model", async () => {
    await using world = await openWorld();
    await expectEnd(world.run(["run", await world.spec(), "--worker", "0/2"]), 0);
    world.mlflow.requests.length = 0;
    const changed = await world.run(["run", await world.spec("models:/churn/1"), "--worker", "1/2"]);
    expect([changed.code, changed.stderr]).toMatchObject([
      66,
      expect.stringContaining('model.path is "models:/churn/1", planned "models:/churn@champion"'),
    ]);
    expect(world.mlflow.requests).toEqual([]);
  });

  test("inspect and init accept a model of a registry", async () => {
    await using world = await openWorld();
    const shown = await world.run(["inspect", "models:/churn@champion"]);
    expect(shown.stdout, shown.stderr).toMatch(/^model {3}models:\/churn@champion → version 1\n/);
    const spec = `${world.out}.yaml`;
    await expectEnd(
      world.run(["init", spec, "--model", "models:/churn@champion", "--input", rows, "--columns", "id"]),
      0,
    );
    const text = await readFile(spec, "utf8");
    expect(text).toContain("name: churn\n");
    expect(text).toContain("path: models:/churn@champion");
    await expectEnd(world.run(["validate", spec]), 0);
    const refused = await world.run(["inspect", "azureml://registries/r/models/m/versions/1"]);
    expect(refused.stderr).toContain("az ml model download");
  });
});

test.skipIf(missingMlflow !== undefined)(
  `a run keeps the version of an MLflow alias that it was planned with: after a kill, when the alias moves, and without the server${skippedMlflow}`,
  async () => {
    await using server = await startMlflow(scratch.path);
    const cache = join(scratch.path, "cache");
    const env = { XDG_CACHE_HOME: cache, MLFLOW_TRACKING_URI: undefined };
    const spec = await writeSpec(scratch.path, fixture, {
      commit_rows: 80,
      model: { path: "models:/churn@champion", registry: { url: server.url } },
    });
    const run = async (...args: string[]): Promise<CliResult> => {
      const ran = await expectEnd(runHere(args, { env }), 0);
      return ran;
    };
    const out = join(scratch.path, "out");
    const manifest = async (): Promise<unknown> => JSON.parse(await readFile(join(out, "_manifest.json"), "utf8"));

    const runUntil = async (call: string, ...options: string[]): Promise<void> => {
      const killed = await runWatched(
        spec,
        { XDG_CACHE_HOME: cache, CRASH_ROOT: out, CRASH_AT: `before ${call}` },
        { args: options },
      );
      expect(killed.signal, killed.stderr).toBe("SIGKILL");
    };

    await runUntil("link part-00002 #1");
    await server.call("POST", "registered-models/alias", { name: "churn", alias: "champion", version: "2" });
    await rm(cache, { recursive: true });

    expect(JSON.parse((await run("run", spec, "--json")).stdout)).toMatchObject({ status: "complete" });
    await expectFinished(out, { golden: await goldenRows(fixture) });
    const origin = { uri: "models:/churn@champion", run_id: expect.stringMatching(/^[0-9a-f]{32}$/), tags: {} };
    expect(await manifest()).toMatchObject({ model: { ...origin, version: "1", tags: { stage: "prod" } } });

    const planned = await run("plan", spec);
    expect(planned.stdout).toMatch(/^model {4}models:\/churn@champion → version 2, sha256 /m);
    expect(planned.stderr).toContain("input `features` is float32 [N,10], declared as float64 [N,10]");

    await runUntil("link control/parts/part-00002 #1", "--new-run");
    await server.stop();
    await run("run", spec);
    expect(await manifest()).toMatchObject({ model: { ...origin, version: "2" } });
    const scores = (await outputRows(out)).map(({ score }) => Number(score));
    expect(scores).toHaveLength(fixture.rows);
    expect(Math.min(...scores)).toBeGreaterThan(900);
    expect(JSON.parse((await run("run", spec, "--json")).stdout)).toMatchObject({ status: "already_complete" });
  },
);

const modelFile = join(projectFolder, "fixtures/models/diabetes-mlp.onnx");
const sha256Of = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

describe("a model on the Hugging Face Hub", () => {
  test("a run that is interrupted goes on with the planned model: after the revision has moved, and without the Hub", async () => {
    const model = await readFile(modelFile);
    const hub = await serveHub({ "onnx/model.onnx": model });
    const env = { HF_ENDPOINT: hub.url, HF_TOKEN: hub.token, XDG_CACHE_HOME: join(scratch.path, "cache") };
    const path = "hf://org/model/onnx/model.onnx";
    const spec = await writeSpec(scratch.path, fixture, { commit_rows: 80, model: { path } });
    await expectEnd(runHere(["run", spec, "--worker", "0/2"], { env }), 0);
    hub.revisions.set(
      "main",
      new Map([["onnx/model.onnx", await readFile(join(projectFolder, "fixtures/models/cancer-logistic.onnx"))]]),
    );

    const other = await expectEnd(runHere(["run", spec, "--worker", "1/2", "--json"], { env }), 0);
    expect(JSON.parse(other.stdout)).toMatchObject({ status: "complete" });
    await expectFinished(join(scratch.path, "out"), { golden: await goldenRows(fixture) });

    await hub[Symbol.asyncDispose]();
    const again = await runHere(["run", spec, "--json"], { env });
    expect([again.code, JSON.parse(again.stdout)], again.stderr).toMatchObject([0, { status: "already_complete" }]);
  });

  test("a run is resumed with the planned commit without the cache, and ends with 66 when the commit is gone", async () => {
    await using hub = await serveHub({ "model.onnx": await readFile(modelFile) });
    const cache = join(scratch.path, "cache");
    const env = { HF_ENDPOINT: hub.url, XDG_CACHE_HOME: cache, HF_TOKEN: undefined, HF_HOME: scratch.path };
    const spec = await writeSpec(scratch.path, fixture, {
      commit_rows: 80,
      model: { path: "hf://org/model/model.onnx" },
    });
    await expectEnd(runHere(["run", spec, "--worker", "0/2"], { env }), 0);
    const planned = hub.revisions.get("main") ?? new Map<string, Uint8Array>();
    const other = await readFile(join(projectFolder, "fixtures/models/diabetes-mlp-batch32.onnx"));
    hub.revisions.set("main", new Map([["model.onnx", other]]));
    await rm(cache, { recursive: true });

    await expectEnd(
      runHere(["run", spec, "--worker", "1/2"], { env }),
      66,
      `has no revision ${commitOf(planned)}; this run was planned with version`,
    );

    hub.revisions.set("v1", planned);
    const resumed = await expectEnd(runHere(["run", spec, "--worker", "1/2", "--json"], { env }), 0);
    expect(JSON.parse(resumed.stdout)).toMatchObject({ status: "complete" });
    await expectFinished(join(scratch.path, "out"), { golden: await goldenRows(fixture) });
  });
});

test("a model at a URL is scored if it has the digest of the spec, and refused with 64 if not", async () => {
  const bytes = await readFile(modelFile);
  await using server = await serveFiles({ "churn.onnx": bytes });
  const env = { XDG_CACHE_HOME: join(scratch.path, "cache") };
  const path = `${server.url}/churn.onnx`;
  await expectEnd(
    runHere(["run", await writeSpec(scratch.path, fixture, { model: { path } })], { env }),
    64,
    "model.sha256: missing; expected the model's sha256 for a URL",
  );
  const wrong = await writeSpec(scratch.path, fixture, { model: { path, sha256: "0".repeat(64) } });
  await expectEnd(runHere(["run", wrong], { env }), 64);

  const spec = await writeSpec(scratch.path, fixture, { model: { path, sha256: sha256Of(bytes) } });
  await expectEnd(runHere(["run", spec], { env }), 0);
  await expectFinished(join(scratch.path, "out"), { golden: await goldenRows(fixture) });
});
