import { type Part, missingText, signsOfFailedGpu } from "../engine/devices/gpu-parts.js";
import type { Machine } from "../engine/devices/machine.js";
import { JobError } from "../util/errors.js";
import { cpuListedLast, type Provider } from "../spec/engine-spec.js";

export interface MissingProvider {
  /** What was being done, as messages begin. */
  readonly doing: string;
  /** What the provider needs on this machine. */
  readonly parts: readonly Part[];
  /** What ONNX Runtime said. */
  readonly message: string;
  readonly machine: Machine;
  /** The providers of the spec. */
  readonly asked: readonly Provider[];
  /** Where it is told what to do, as hints begin. */
  readonly advice: string;
}

/**
 * Why a provider cannot run: DEVICE where the machine has a GPU that fails, which another attempt may find well, or
 * on another machine; PROVIDER_MISSING where there is none, or software is missing.
 */
export function providerMissing(missing: MissingProvider): JobError {
  const { doing, parts, message, machine, asked, advice } = missing;
  const found = missingText(parts);
  // "CUDA failure 100: …" says something beside that; "Failed to load shared library" nothing.
  const said = found === undefined || / failure /.test(message) ? [message] : [];
  const why = [...said, ...(found === undefined ? [] : [found])].join("; ");
  const signs = signsOfFailedGpu(parts, message, machine);
  return signs.length > 0
    ? new JobError("DEVICE", `${doing}: ${why}; this machine has a GPU (${signs.join(", ")}), which fails`, {
        hint: "run the same command again, on another machine if it stays so: nvidia-smi tells of the GPU, `infer-batch doctor` of what it needs",
      })
    : new JobError("PROVIDER_MISSING", `${doing}: ${why}`, {
        hint: `${advice}; ${cpuListedLast(asked)}`,
      });
}
