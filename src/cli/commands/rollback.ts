import { refuseChain } from "../../job/chain.js";
import { type CommandLine, paramFlag, jsonFlag, type CommandAnswer } from "../flags.js";
import { dirname, resolve } from "node:path";
import { openLoaded } from "../../job/open.js";
import { type JobOptions, readSpec } from "../../job/reading.js";
import { reportRollback } from "../../job/reporting.js";
import { paramTexts } from "../../run/plan/identity.js";
import { type RolledBack, runOfDate } from "../../run/lifecycle/published-run.js";
import type { LoadedSpec } from "../../job/jobfile/load.js";
import { JobError } from "../../base/errors.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";

export const rollbackCommand: CommandLine = {
  flags: { ...paramFlag, ...jsonFlag },
  run: rollback,
};

async function rollback(spec: string, options: JobOptions, io: SafeIo): Promise<CommandAnswer> {
  const log = createWarningLog(io.stderr);
  const loaded = await readSpec(spec, options, { standIns: "all" });
  refuseChain(loaded, "rolling back", "delete the rows of a run by its run_id, which output.lineage adds");
  await using opened = await openLoaded(loaded, spec);
  const { sink } = opened;
  const dateParam = opened.job.dateParam ?? null;
  if (sink.table === undefined) {
    throw new JobError("USAGE", `rolling back ${sink.target}: a new run keeps nothing of the files that it replaces`, {
      hint: "rollback is for output.postgres with mode: replace; docs/rollback.md says how to go back in other outputs",
    });
  }
  const done = await sink.table.rollBack();
  const { runId, params } = done.undone;
  const readersHave = done.restored && runOfDate(done.restored, dateParam);
  if (params !== null) {
    const param = paramTexts(params);
    // The spec may have lost a param since.
    const load = (): Promise<LoadedSpec> => readSpec(spec, { param });
    await reportRollback({ load, folder: dirname(resolve(spec)), log }, { runId, readersHave });
  }
  const now =
    readersHave === undefined
      ? "readers have again what was there before any run"
      : `readers have ${readersHave} again`;
  return {
    json: () => rollbackJson(done, sink.target),
    text: () =>
      `${sink.target}: ${runOfDate(done.undone, dateParam)} is rolled back, and its rows are kept as ${done.kept}; ${now}`,
  };
}

function rollbackJson({ kept, undone, restored }: RolledBack, output: string): object {
  return {
    output,
    undone: kept,
    run_id: undone.runId,
    params: undone.params,
    restored: restored === undefined ? null : { run_id: restored.runId, params: restored.params },
  };
}
