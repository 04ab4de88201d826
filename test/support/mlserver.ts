import { spawn } from "node:child_process";
import { closeSync, openSync, readFileSync } from "node:fs";
import { copyFile, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { projectFolder } from "./cli.js";
import { pythonTools } from "./python-tools.js";
import { freePort } from "./s3-server.mjs";
import type { V2Model } from "./v2-server.js";

export const mlserver = pythonTools("mlserver", ["mlserver==1.7.1", "onnxruntime==1.32.0"]);

/** A real MLServer, which speaks JSON only and names a model's version in its answers alone. */
export interface MlServer extends AsyncDisposable {
  readonly url: string;
  /** Ends it with SIGKILL. */
  stop(): Promise<void>;
  /** Starts it again at the same URL, and returns before it is ready. */
  start(): void;
}

/** Starts MLServer with a model of fixtures/models, called `m`. @param folder an empty folder */
export async function startMlServer(folder: string, file: string, signature: V2Model): Promise<MlServer> {
  await mkdir(join(folder, "m"));
  const script = fileURLToPath(new URL("mlserver_model.py", import.meta.url));
  await copyFile(script, join(folder, "mlserver_model.py"));
  const [port, grpcPort, metricsPort] = [await freePort(), await freePort(), await freePort()];
  const settings = { host: "127.0.0.1", http_port: port, grpc_port: grpcPort, metrics_port: metricsPort };
  await writeFile(join(folder, "settings.json"), JSON.stringify({ ...settings, parallel_workers: 0, debug: false }));
  const { inputs, outputs } = signature;
  const model = { name: "m", implementation: "mlserver_model.Onnx", parameters: { version: "3" }, inputs, outputs };
  await writeFile(join(folder, "m", "model-settings.json"), JSON.stringify(model));
  const log = join(folder, "server.log");
  const ended: Promise<unknown>[] = [];
  let child: ReturnType<typeof spawn> | undefined;
  const start = (): void => {
    const output = openSync(log, "a");
    child = spawn(join(mlserver.bin, "mlserver"), ["start", "."], {
      cwd: folder,
      stdio: ["ignore", output, output],
      env: { ...process.env, ONNX: join(projectFolder, "fixtures/models", file), PYTHONPATH: folder },
    });
    closeSync(output);
    const started = child;
    ended.push(new Promise((done) => started.once("close", done)));
  };
  const stop = async (): Promise<void> => {
    child?.kill("SIGKILL");
    await Promise.all(ended);
  };
  const url = `http://127.0.0.1:${port}`;
  start();
  while ((await fetch(`${url}/v2/health/ready`).catch(() => undefined))?.ok !== true) {
    if (child?.exitCode !== null) {
      throw new Error(`MLServer did not start: ${readFileSync(log, "utf8").slice(-2000)}`);
    }
    await sleep(100);
  }
  return { url, stop, start, [Symbol.asyncDispose]: stop };
}
