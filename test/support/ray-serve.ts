import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { projectFolder } from "./cli.js";
import { type ModelServerProcess, startModelServer } from "./model-server.js";
import { pythonToolsOfTorture } from "./python-tools.js";
import { freePort } from "./s3-server.mjs";

/** Ray Serve, whose deployments are Python code that reads and answers JSON. */
export const rayServe = pythonToolsOfTorture("ray-serve", ["ray[serve]==2.60.0", "onnxruntime==1.32.0"]);

/** Starts a real Ray Serve with a model of fixtures/models at `/m`. @param folder an empty folder */
export async function startRayServe(folder: string, file: string): Promise<ModelServerProcess> {
  const port = await freePort();
  return await startModelServer({
    name: "Ray Serve",
    url: `http://127.0.0.1:${port}`,
    readyPath: "/m",
    folder,
    command: [
      join(rayServe.bin, "python"),
      fileURLToPath(new URL("ray_serve.py", import.meta.url)),
      join(projectFolder, "fixtures/models", file),
      String(port),
    ],
    env: { ...process.env, PYTHONUNBUFFERED: "1", RAY_USAGE_STATS_ENABLED: "0", RAY_AUTH_MODE: "disabled" },
  });
}
