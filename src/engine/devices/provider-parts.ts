import { assertNever } from "../../util/errors.js";
import type { Provider } from "../../spec/engine-spec.js";
import { gpuParts } from "./gpu-parts.js";
import type { Machine } from "./machine.js";
import type { Part } from "./part.js";
import { webGpuParts } from "./webgpu-parts.js";

/** Checks what a provider needs on this machine; empty if it needs nothing but onnxruntime-node. */
export async function partsOf(provider: Provider, machine: Machine, deviceId: number): Promise<readonly Part[]> {
  switch (provider) {
    case "cpu":
      return [];
    case "cuda":
    case "tensorrt":
      return await gpuParts(provider, machine, deviceId);
    case "webgpu":
      return await webGpuParts(machine);
    case "coreml":
      return [platformPart("CoreML", "darwin", machine)];
    case "dml":
      return [platformPart("DirectML", "win32", machine)];
    default:
      return assertNever(provider);
  }
}

/** The providers of `providers: auto`, in its order, that a machine has all parts for. The first GPU counts. */
export async function providersOn(machine: Machine): Promise<readonly Provider[]> {
  const found: Provider[] = [];
  for (const provider of ["cuda", "webgpu", "coreml", "dml", "cpu"] as const) {
    const parts = await partsOf(provider, machine, 0);
    if (parts.every(({ state }) => state !== "missing")) {
      found.push(provider);
    }
  }
  return found;
}

function platformPart(name: string, system: string, { platform, runtime }: Machine): Part {
  return platform.startsWith(`${system}/`)
    ? { name, state: "ok", found: `in onnxruntime-node ${runtime.version}` }
    : {
        name,
        state: "missing",
        found: `onnxruntime-node has none for ${platform.replace("/", " ")}`,
        remedy: `score on ${system === "darwin" ? "macOS" : "Windows"}, or list another provider`,
      };
}
