import { execFile, type ExecFileException } from "node:child_process";
import { fileURLToPath } from "node:url";
import { type Machine, type Part, missingText, signsOfFailedGpu } from "../models/devices.js";
import { type Provider, cpuListedLast } from "./jobfile/engine-spec.js";
import { JobError } from "../base/errors.js";
import { ProviderFault, shortFault } from "../models/onnx/faults.js";

export interface MissingProvider {
  readonly doing: string;
  readonly parts: readonly Part[];
  readonly message: string;
  /** The provider's driver failed in a way that another attempt may not meet. Default: the message decides. */
  readonly driverFailed?: boolean;
  readonly machine: Machine;
  readonly asked: readonly Provider[];
  /** Where the user finds what to do; the hint begins with it. */
  readonly advice: string;
}

/** DEVICE if the machine has a GPU that fails: another attempt may succeed; else PROVIDER_MISSING. */
export function providerMissing(missing: MissingProvider): JobError {
  const { doing, parts, message, machine, asked, advice, driverFailed = false } = missing;
  const found = missingText(parts);
  // "CUDA failure 100: …" adds something to the missing parts; "Failed to load shared library" does not.
  const said = found === undefined || / failure /.test(message) ? [message] : [];
  const why = [...said, ...(found === undefined ? [] : [found])].join("; ");
  if (driverFailed) {
    return new JobError("DEVICE", `${doing}: ${why}`, {
      hint: "run the same command again, on another machine if it fails again",
    });
  }
  const signs = signsOfFailedGpu(parts, message, machine);
  return signs.length > 0
    ? new JobError("DEVICE", `${doing}: ${why}; this machine has a GPU (${signs.join(", ")}), which fails`, {
        hint: "run the same command again, on another machine if it fails again: nvidia-smi shows the GPU, `infer-batch doctor` what scoring on it needs",
      })
    : new JobError("PROVIDER_MISSING", `${doing}: ${why}`, {
        hint: `${advice}; ${cpuListedLast(asked)}`,
      });
}

const probeFile = fileURLToPath(new URL("./probe-worker.js", import.meta.url));
/** A driver that takes longer hangs: creating a device takes a second at most. */
const longestMs = 60_000;

/** In its own process: a bad driver may end it, and WebGPU loads all. @returns its GPU's name @throws ProviderFault */
export async function probeProvider(provider: Provider): Promise<string | undefined> {
  // The Vulkan loader then says which device is opened: ONNX Runtime does not.
  const env = { VK_LOADER_DEBUG: "error,warn,driver,layer", ...process.env, ORT_DISABLE_TELEMETRY: "1" };
  const [error, stdout, stderr] = await new Promise<[ExecFileException | null, string, string]>((ended) => {
    execFile(process.execPath, [probeFile, provider], { timeout: longestMs, env }, (...result) => ended(result));
  });
  if (error === null) {
    return openedDevice(stderr);
  }
  if (error.killed === true) {
    throw new ProviderFault(provider, "its driver did not answer for a minute", { driverFailed: true });
  }
  if (error.signal != null) {
    throw new ProviderFault(provider, `its driver ended a process with ${error.signal}`, { driverFailed: true });
  }
  throw new ProviderFault(provider, [shortFault(stdout), ...driverLines(stderr)].join("; "));
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
