import type { LoadedSpec } from "./load.js";
import type { JobSpec } from "./job-spec.js";
import { isObjectUri } from "./object-uri.js";

/** A run of the first rows of a job into a folder of its own, which tries the job. */
export interface LimitedRun {
  readonly rows: number;
  /** An absolute path, or the URI of a folder. */
  readonly folder: string;
}

/** The name of the param that tells limited runs of different sizes apart; no spec can have it. */
export const limitParam = "--limit";

/**
 * Returns a spec whose run writes Parquet parts to the folder of a limited run. It sends no
 * notifications and has no checks, since those compare a run with whole ones.
 */
export function limitedSpec(loaded: LoadedSpec, { rows, folder }: LimitedRun): LoadedSpec {
  const { checks: _checks, challenger: _challenger, reuse: _reuse, ...job } = loaded.spec;
  const { columns, lineage, parquet } = job.output;
  const { method, timeout } = job.report;
  const spec: JobSpec = {
    ...job,
    params: { ...job.params, [limitParam]: String(rows) },
    output: {
      columns,
      lineage,
      parquet: { compression: "zstd", ...(isObjectUri(folder) ? parquet : {}), path: folder },
    },
    report: { on_success: "", on_failure: "", on_held: "", on_late: "", method, timeout },
  };
  return { ...loaded, spec, outputPattern: folder };
}
