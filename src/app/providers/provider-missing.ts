import { signsOfFailedGpu } from "../../engine/devices/parts.js";
import { type Machine, missingText, type Part } from "../../engine/devices/machine.js";
import { cpuListedLast, type Provider } from "../../spec/engine-spec.js";
import { JobError } from "../../util/errors.js";

export interface MissingProvider {
  /** The act that messages begin with. */
  readonly doing: string;
  /** The parts that the provider needs on this machine. */
  readonly parts: readonly Part[];
  /** The message of ONNX Runtime. */
  readonly message: string;
  /** The provider's driver failed in a way that another attempt may not meet. Default: the message decides. */
  readonly driverFailed?: boolean;
  readonly machine: Machine;
  /** The providers that the spec asks for. */
  readonly asked: readonly Provider[];
  /** Where the user finds what to do; the hint begins with it. */
  readonly advice: string;
}

/**
 * Returns the error for a provider that cannot run: DEVICE if the machine has a GPU that fails, so that another attempt
 * or another machine may succeed; PROVIDER_MISSING if there is no GPU or software is missing.
 */
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
