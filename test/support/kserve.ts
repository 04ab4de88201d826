import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { projectFolder } from "./cli.js";
import { type ModelServerProcess, startModelServer } from "./model-server.js";
import { pythonToolsOfTorture } from "./python-tools.js";
import { freePort } from "./s3-server.mjs";
import type { V2Model } from "./v2-server.js";

/** KServe's own model server in Python. */
export const kserve = pythonToolsOfTorture("kserve", ["kserve==0.21.0", "onnxruntime==1.32.0"]);

/** Starts a real KServe with a model of fixtures/models, called `m`. @param folder an empty folder */
export async function startKServe(folder: string, file: string, signature: V2Model): Promise<ModelServerProcess> {
  const [port, grpcPort] = [await freePort(), await freePort()];
  const { inputs, outputs } = signature;
  return await startModelServer({
    name: "KServe",
    url: `http://127.0.0.1:${port}`,
    readyPath: "/v2/models/m/ready",
    folder,
    command: [
      join(kserve.bin, "python"),
      fileURLToPath(new URL("kserve_server.py", import.meta.url)),
      join(projectFolder, "fixtures/models", file),
      JSON.stringify({ inputs, outputs }),
      String(port),
      String(grpcPort),
    ],
    env: { ...process.env, PYTHONUNBUFFERED: "1" },
  });
}
