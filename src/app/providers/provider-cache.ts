import { cpus } from "node:os";
import { z } from "../../util/zod.js";
import { gpuIdentity } from "../../engine/devices/gpus.js";
import type { Machine } from "../../engine/devices/machine.js";
import type { ProviderMeasurements } from "../../scoring/provider-trials.js";
import { providerNames } from "../../spec/engine-spec.js";
import type { JobSpec } from "../../spec/job-spec.js";
import { type KeyedCache, openKeyedCache } from "../caches/keyed-cache.js";
import { usableCores } from "../process-limits.js";
import { componentVersions } from "../version.js";

const provider = z.enum(providerNames);

const schema = z.strictObject({
  measuredAt: z.string(),
  speeds: z.array(z.strictObject({ provider, rowsPerSecond: z.number().positive(), startSeconds: z.number() })),
  leftOut: z.array(z.strictObject({ provider, reason: z.string(), isLasting: z.boolean() })),
}) satisfies z.ZodType<ProviderMeasurements>;

/** Opens the file for everything that the speed of a whole job depends on, apart from its number of rows. */
export function openProviderCache(
  { model, input, output, engine }: JobSpec,
  { modelSha256, machine }: { readonly modelSha256: string; readonly machine: Machine },
): KeyedCache<ProviderMeasurements> {
  const { path: _, ...bindings } = model;
  const { batch_size, threads, trees, device_id } = engine;
  const { columns, where, format } = input;
  const drivers = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "LD_LIBRARY_PATH"].map((name) => machine.env[name]);
  const key = {
    model: modelSha256,
    bindings,
    input: { columns, where, format },
    output: output.columns,
    engine: { batch_size, threads, trees, device_id },
    cpu: cpus()[0]?.model ?? process.arch,
    cores: usableCores(),
    gpus: [gpuIdentity(machine), ...machine.list("/dev/dri"), ...drivers],
    versions: componentVersions,
  };
  return openKeyedCache("providers", key, schema);
}
