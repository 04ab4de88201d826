import { type Machine, thisMachine } from "../../engine/devices/machine.js";
import { partsOf } from "../../engine/devices/provider-parts.js";
import type { ProviderTrials, TrialLimits } from "../../scoring/provider-trials.js";
import { type Provider, providerNames } from "../../spec/engine-spec.js";
import type { JobSpec } from "../../spec/job-spec.js";
import { measureProvider } from "./measure-provider.js";
import { openProviderCache } from "./provider-cache.js";

export interface TrialOptions {
  readonly specPath: string;
  readonly signal: AbortSignal;
  /** Scoring has to take about this long to be measured. */
  readonly targetSeconds?: number;
  readonly machine?: Machine;
  readonly limits?: TrialLimits;
}

/** Long enough to find the fastest batch size of most models. */
const usualSeconds = 3;
const usualLimits: TrialLimits = { cpuSeconds: 30, modelSeconds: 3 };

/** Opens what measures providers for the job of a spec. */
export function openProviderTrials(
  spec: JobSpec,
  { specPath, signal, targetSeconds = usualSeconds, machine = thisMachine(), limits = usualLimits }: TrialOptions,
): ProviderTrials {
  return {
    limits,
    contenders: () => contendersOn(machine),
    measure: (provider, firstRows) =>
      measureProvider({ specPath, params: spec.params, provider, firstRows, targetSeconds }, signal),
    find: (modelSha256) => openProviderCache(spec, { modelSha256, machine }).read(),
    async keep(modelSha256, found) {
      await openProviderCache(spec, { modelSha256, machine })
        .write(found)
        .catch(() => undefined);
    },
  };
}

/** Returns the providers that a machine has all parts for, without the CPU. The first GPU counts. */
export async function contendersOn(machine: Machine): Promise<readonly Provider[]> {
  const found: Provider[] = [];
  for (const provider of providerNames) {
    const parts = await partsOf(provider, machine, 0);
    if (provider !== "cpu" && parts.every(({ state }) => state !== "missing")) {
      found.push(provider);
    }
  }
  return found;
}
