import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { cpus } from "node:os";
import { join } from "node:path";
import { z } from "../util/zod.js";
import type { Tuning } from "../run/tune.js";
import type { JobSpec } from "../spec/job-spec.js";
import { cacheFolder } from "../util/cache-folder.js";
import { usableCores } from "./process-limits.js";
import { sha256 } from "./job-context.js";
import { componentVersions } from "./version.js";

/** An earlier result of `tune` for a model on this machine. */
export interface CachedTuning {
  /** ISO 8601, UTC. */
  readonly measuredAt: string;
  readonly tuning: readonly Tuning[];
}

export interface TuneCache {
  /** undefined: there is no earlier result, or the file is not ours. */
  read(): Promise<CachedTuning | undefined>;
  /** @throws system errors */
  write(found: CachedTuning): Promise<void>;
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
export function openTuneCache({ model, engine }: JobSpec, modelSha256: string): TuneCache {
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
  const folder = cacheFolder("tune");
  const file = join(folder, `${sha256(JSON.stringify(key))}.json`);
  return {
    async read() {
      try {
        return schema.safeParse(JSON.parse(await readFile(file, "utf8"))).data;
      } catch {
        return undefined; // it can be measured again
      }
    },
    async write(found) {
      await mkdir(folder, { recursive: true });
      const temporary = `${file}.${process.pid}`;
      await writeFile(temporary, JSON.stringify(found));
      await rename(temporary, file);
    },
  };
}
