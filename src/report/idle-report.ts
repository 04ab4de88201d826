import type { Plan } from "../plan/plan.js";
import { spanCount } from "../plan/spans.js";
import type { AttemptRecord } from "./attempt-record.js";
import type { RowsOfRun } from "../publish/span-record.js";
import type { RunReport } from "./report.js";

/** The report of an attempt that found all spans of a run committed, and scored none. */
export function idleReport(
  { inputWaitSeconds }: Pick<AttemptRecord, "inputWaitSeconds">,
  { plan, rowsOfRun, output }: { readonly plan: Plan; readonly rowsOfRun: RowsOfRun; readonly output: string },
): RunReport {
  return {
    runId: plan.runId,
    status: "already_complete",
    verdict: null,
    rowsPlanned: plan.input.rows,
    rowsScored: 0,
    rowsRejected: 0,
    rowsFiltered: 0,
    rowsReused: 0,
    rowsByTrees: 0,
    rowsOfRun,
    spansPlanned: spanCount(plan),
    spansCommitted: spanCount(plan),
    spansResumed: spanCount(plan),
    shardsUnplanned: 0,
    inputWaitSeconds,
    seconds: 0,
    batchSize: null,
    trees: null,
    engineBusy: null,
    stageSeconds: null,
    unitsReadAgain: {},
    provider: null,
    providersMissing: [],
    output,
  };
}
