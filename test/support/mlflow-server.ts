import { spawn, spawnSync } from "node:child_process";
import { closeSync, existsSync, openSync, readFileSync, renameSync } from "node:fs";
import { cp } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { buildOnce, cacheFolder } from "./build-once.mjs";
import { projectFolder } from "./cli.js";
import { pythonTools } from "./python-tools.js";
import { freePort } from "./s3-server.mjs";

export interface MlflowServer extends AsyncDisposable {
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
    const script = fileURLToPath(new URL("mlflow_seed.py", import.meta.url));
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
export const missingMlflow = seeded.missing;
export const skippedMlflow = missingMlflow === undefined ? "" : ` (skipped: ${missingMlflow.split("\n")[0]})`;

/** Starts a real MLflow server whose registry has two versions of `churn`. @param folder an empty folder */
export async function startMlflow(folder: string): Promise<MlflowServer> {
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
