import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { ProviderFault, shortFault } from "../../engine/onnx/faults.js";
import type { Provider } from "../../spec/engine-spec.js";

/** The file that runs in a process which tries a provider. */
const probeFile = fileURLToPath(new URL("./probe-worker.js", import.meta.url));
/** A driver that takes longer hangs: creating a device takes a second at most. */
const longestMs = 60_000;

/** Whether a provider is tried in a process of its own before it is used: WebGPU loads all drivers that it finds. */
export function needsProbe(provider: Provider): boolean {
  return provider === "webgpu";
}

/** What a provider that works says of itself. */
export interface Probed {
  /** The name of the GPU that it has chosen; undefined: unknown. */
  readonly adapter: string | undefined;
}

/**
 * Tries a provider in a process of its own. WebGPU's drivers print to stderr, and a bad one may end the process with a
 * signal.
 * @throws ProviderFault if this machine cannot run it
 */
export async function probeProvider(provider: Provider): Promise<Probed> {
  // The Vulkan loader then says which device is opened: ONNX Runtime does not.
  const env = { VK_LOADER_DEBUG: "error,warn,driver,layer", ...process.env, ORT_DISABLE_TELEMETRY: "1" };
  const ended = await new Promise<Ended>((resolve) => {
    execFile(process.execPath, [probeFile, provider], { timeout: longestMs, env }, (error, stdout, stderr) => {
      resolve({ failed: error !== null, killed: error?.killed === true, signal: error?.signal, stdout, stderr });
    });
  });
  if (!ended.failed) {
    return { adapter: openedDevice(ended.stderr) };
  }
  if (ended.killed) {
    throw new ProviderFault(provider, "its driver did not answer for a minute", { driverFailed: true });
  }
  if (ended.signal != null) {
    throw new ProviderFault(provider, `its driver ended a process with ${ended.signal}`, { driverFailed: true });
  }
  throw new ProviderFault(provider, [shortFault(ended.stdout), ...driverLines(ended.stderr)].join("; "));
}

interface Ended {
  readonly failed: boolean;
  readonly killed: boolean;
  readonly signal: NodeJS.Signals | null | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

/** 'DRIVER | LAYER:          Using "SwiftShader Device (Subzero)" with driver: "/…/libvk_swiftshader.so"' */
function openedDevice(stderr: string): string | undefined {
  return [...stderr.matchAll(/Using "([^"\n]+)" with driver: "/g)].at(-1)?.[1];
}

/** "Warning: Couldn't load Vulkan: libvulkan.so.1: cannot open shared object file", then where in the source. */
function driverLines(stderr: string): string[] {
  const lines = stderr.split("\n").flatMap((line) => /^(?:Warning|Error): (.+)$/i.exec(line.trim())?.[1] ?? []);
  return [...new Set(lines)].slice(0, 2);
}
