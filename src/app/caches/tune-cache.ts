import { cpus } from "node:os";
import { z } from "../../util/zod.js";
import type { Tuning } from "../../run/tune.js";
import type { JobSpec } from "../../spec/job-spec.js";
import { type KeyedCache, openKeyedCache } from "./keyed-cache.js";
import { usableCores } from "../process-limits.js";
import { componentVersions } from "../version.js";

/** An earlier result of `tune` for a model on this machine. */
export interface CachedTuning {
  /** ISO 8601, UTC. */
  readonly measuredAt: string;
  readonly tuning: readonly Tuning[];
}

const schema = z.strictObject({
  measuredAt: z.string(),
  tuning: z
    .array(
      z.strictObject({
        sessions: z.int().positive(),
        threads: z.int().positive(),
        batchRows: z.int().positive(),
        rowsPerSecond: z.number().nonnegative(),
      }),
    )
    .min(1),
}) satisfies z.ZodType<CachedTuning>;

/**
 * Opens the result file for everything that speed depends on: model, bindings, providers, processor, cores, versions.
 */
export function openTuneCache({ model, engine }: JobSpec, modelSha256: string): KeyedCache<CachedTuning> {
  const { path: _, ...bindings } = model;
  const key = {
    model: modelSha256,
    bindings,
    providers: engine.providers,
    trees: engine.trees,
    device: cpus()[0]?.model ?? process.arch,
    cores: usableCores(),
    versions: componentVersions,
  };
  return openKeyedCache("tune", key, schema);
}
