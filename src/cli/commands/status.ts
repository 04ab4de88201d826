import { count } from "../../report/report.js";
import { type RunState, runState } from "../../run/preview.js";
import { type JobOptions, openJob } from "../job-context.js";

export async function statusCommand(spec: string, options: JobOptions & { readonly json?: boolean }): Promise<void> {
  await using job = await openJob(spec, options);
  const state = await runState(job);
  process.stdout.write(`${options.json === true ? stateJson(state) : stateText(state)}\n`);
}

function stateJson(state: RunState): string {
  return JSON.stringify({
    run_id: state.runId,
    status: state.status,
    rows_planned: state.rowsPlanned,
    spans_planned: state.spansPlanned,
    spans_committed: state.spansCommitted,
    output: state.output,
  });
}

function stateText({ runId, status, rowsPlanned, spansPlanned, spansCommitted, output }: RunState): string {
  if (status === "not_planned") {
    return `${runId}: not planned yet; nothing of it is in ${output}`;
  }
  const progress = `${spansCommitted.toLocaleString("en-US")} of ${count(spansPlanned, "span")} committed (${count(rowsPlanned, "row")})`;
  return `${runId}: ${status}, ${progress} -> ${output}`;
}
