import { silentProgress } from "../report/progress.js";
import type { AttemptRecord } from "../report/attempt-record.js";
import type { JobContext, Log } from "../scoring/context.js";
import { challengerModel, challengerPlaces } from "../spec/model-spec.js";
import type { JobSpec } from "../spec/job-spec.js";
import type { LoadedSpec } from "../spec/load.js";
import { challengerTools, type ModelToolsOptions } from "./models/model-tools.js";
import { openSink, type SinkOptions } from "./open-sink.js";

/** The folder with its predictions, below that of the published ones, and what is added to the name of a table. */
const place = "_challenger";

/** The longest time from the first failure of a call to its target to its last try: published rows wait for it. */
const mostRetrySeconds = 30;

/**
 * The spec of the job, which scores all rows and is published nowhere. No spec can have its name. Without a challenger, it
 * says where the predictions of an earlier one are.
 */
function specOf({ challenger, checks: _checks, reuse: _reuse, ...job }: JobSpec): JobSpec {
  const { columns, parquet, postgres } = job.output;
  return {
    ...job,
    name: `${job.name}.challenger`,
    model: challenger === undefined ? job.model : challengerModel(job.model, challenger),
    input: { ...job.input, wait: 0, freshness: undefined },
    on_bad_row: "reject",
    max_rejects: "100%",
    output: {
      columns,
      lineage: postgres !== undefined && postgres.mode !== "replace",
      numbered: true,
      ...(parquet && { parquet: { ...parquet, path: `${parquet.path.replace(/\/+$/, "")}/${place}` } }),
      ...(postgres && { postgres: { ...postgres, table: `${postgres.table}${place}` } }),
    },
  };
}

/** How the job is opened that scores the same rows with the challenger of a spec. */
export function secondJobOpener(
  { spec, where, variablesOf, outputPattern }: LoadedSpec,
  sink: Omit<SinkOptions, "outputPattern" | "variablesOf" | "where">,
  tools: ModelToolsOptions & { readonly log: Log; readonly recordOf: (spec: JobSpec) => AttemptRecord },
): JobContext["openSecondJob"] {
  const own = specOf(spec);
  const { log, recordOf } = tools;
  const debug = (message: string): void => {
    log.debug(message);
  };
  return async () => {
    // Its rows are published nowhere: they may replace those of any earlier run, and be added to them.
    const attempt = { allowDuplicates: true, allowOlder: true };
    const opened = await openSink(own, {
      ...sink,
      retry: { ...sink.retry, maxSeconds: Math.min(sink.retry.maxSeconds, mostRetrySeconds) },
      attempt,
      outputPattern: `${outputPattern}/${place}`,
      variablesOf,
      where,
    });
    return {
      spec: own,
      sink: opened,
      where: challengerPlaces(where),
      ...challengerTools(spec, { ...tools, where: challengerPlaces(where) }),
      record: recordOf(own),
      progress: silentProgress,
      log: { debug, info: debug, warn: debug }, // what is wrong with it is said once, at its end
      [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose](),
    };
  };
}
