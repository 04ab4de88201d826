import type { Attempt, Job, Reporter } from "../flow/opened-job.js";
import { reuseCostText, workOf } from "../report/attempt-record.js";
import type { RunReport } from "../report/report.js";
import type { RunSink, Sink } from "../targets/target.js";
import { newRunCommand, rolledBackReport } from "./hints.js";
import { isRolledBack } from "./lifecycle/lifecycle.js";
import { prunedError, type Pruning } from "./lifecycle/pruned-run.js";
import { rowsOf } from "./lifecycle/span-record.js";
import { spanCount } from "./plan/spans.js";

/* What an attempt reports of itself, and attempts that find nothing to do: they need neither engine nor verdict. */

export type AttemptEnd = Pick<RunReport, "status" | "verdict" | "scoreAgain" | "comparison" | "decided">;

export function attemptReport(
  sink: Sink,
  { record, log }: Reporter,
  { plan, spans }: RunSink,
  end: AttemptEnd & Pick<RunReport, "shardsUnplanned">,
): RunReport {
  record.finish();
  const reuseCost = reuseCostText(record);
  if (reuseCost !== undefined) {
    log.info(reuseCost);
  }
  return {
    ...workOf(record),
    runId: plan.runId,
    ...end,
    rowsPlanned: plan.input.rows,
    rowsOfRun: rowsOf(spans),
    spansPlanned: spanCount(plan),
    spansCommitted: spans.size,
    spansResumed: spans.size - record.counts.spansCommitted,
    output: sink.target,
  };
}

/** Reports an attempt that found all spans of a run committed, and scored none. */
export function unscored(sink: Sink, reporter: Reporter, run: RunSink): RunReport {
  return attemptReport(sink, reporter, run, { status: "already_complete", verdict: null, shardsUnplanned: 0 });
}

/** Reports that no row came since the last run of a chain, so that none is planned. */
export function nothingNew({ base }: Job, sink: Sink, { record }: Reporter): RunReport {
  record.finish();
  record.inputState = { ...record.inputState, rowsBehind: 0 };
  const none = { rowsPlanned: 0, spansPlanned: 0, spansCommitted: 0, spansResumed: 0, shardsUnplanned: 0 };
  return { ...workOf(record), ...none, runId: base, status: "nothing_new", verdict: null, output: sink.target };
}

/** Reports a run that was complete when the command came. Removes its files that killed commands have left. */
export async function alreadyComplete(job: Job, sink: Sink, reporter: Reporter, run: RunSink): Promise<RunReport> {
  await run.finish();
  const rolledBack = isRolledBack(run.state) ? await rolledBackReport(job, sink, reporter.log, run.plan) : undefined;
  return { ...unscored(sink, reporter, run), rolledBack };
}

/** Refuses a pruned run, except with `--new-run`. @throws JobError PRUNED */
export function refusePruned(job: Job, attempt: Attempt, pruned: Pruning): void {
  if (!attempt.newRun) {
    throw prunedError(pruned, newRunCommand(job, pruned.plan));
  }
}
