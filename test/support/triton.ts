import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { projectFolder } from "./cli.js";
import { type ModelServerProcess, startModelServer } from "./model-server.js";
import { pythonToolsOfTorture } from "./python-tools.js";
import { freePort } from "./s3-server.mjs";
import type { V2Model } from "./v2-server.js";

/** Triton's Python backend is linked to Debian's Python 3.11, so an interpreter of another make does not do. */
const python = "/usr/bin/python3.11";

/** Triton Inference Server itself, 2.51, as a package. */
export const triton = pythonToolsOfTorture("triton", ["nvidia-pytriton==0.7.0", "onnxruntime==1.32.0"], python);

/** Starts a real Triton with a model of fixtures/models, called `m`. @param folder an empty folder */
export async function startTriton(folder: string, file: string, signature: V2Model): Promise<ModelServerProcess> {
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
      fileURLToPath(new URL("triton_server.py", import.meta.url)),
      join(projectFolder, "fixtures/models", file),
      JSON.stringify({ inputs, outputs }),
      JSON.stringify({ http_port: port, grpc_port: grpcPort, metrics_port: metricsPort }),
    ],
    env: { ...env, PYTHONUNBUFFERED: "1", PYTRITON_HOME: home },
  });
}
