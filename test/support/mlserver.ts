import { copyFile, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { projectFolder } from "./cli.js";
import { type ModelServerProcess, startModelServer } from "./model-server.js";
import { pythonTools } from "./python-tools.js";
import { freePort } from "./s3-server.mjs";
import type { V2Model } from "./v2-server.js";

export const mlserver = pythonTools("mlserver", ["mlserver==1.7.1", "onnxruntime==1.32.0"]);

/**
 * Starts a real MLServer, which speaks JSON only and names a model's version in its answers alone, with a model of
 * fixtures/models, called `m`.
 * @param folder an empty folder
 */
export async function startMlServer(folder: string, file: string, signature: V2Model): Promise<ModelServerProcess> {
  await mkdir(join(folder, "m"));
  const script = fileURLToPath(new URL("mlserver_model.py", import.meta.url));
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
