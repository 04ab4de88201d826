import { printable } from "../../util/printable.js";
import { count, showCount, verdictFields } from "../../report/report.js";
import { table } from "../../report/table.js";
import { type RunState, runState } from "../../run/state.js";
import type { SafeIo } from "../io.js";
import { openJob } from "../../app/job-context.js";
import type { JobOptions } from "../../app/read-spec.js";

export async function statusCommand(
  spec: string,
  options: JobOptions & { readonly json?: boolean },
  io: SafeIo,
): Promise<void> {
  await using job = await openJob(spec, options);
  const state = await runState(job);
  io.stdout.write(`${options.json === true ? stateJson(state) : stateText(state)}\n`);
  if (state.error !== undefined) {
    throw state.error; // with its hint and exit code
  }
}

function stateJson(state: RunState): string {
  return JSON.stringify({
    run_id: state.runId,
    status: state.status,
    rows_planned: state.rowsPlanned,
    spans_planned: state.spansPlanned,
    spans_committed: state.spansCommitted,
    verdict: verdictFields(state.verdict),
    decision: state.decision,
    commands: state.commands,
    damage: state.damage,
    workers: state.attempts.map(({ worker, workers, writer, provider, batchSize, spans }) => ({
      worker,
      workers,
      writer,
      provider,
      batch_size: batchSize,
      spans,
    })),
    unfinished: state.unfinished.map(({ runId, command }) => ({ run_id: runId, command })),
    output: state.output,
  });
}

function stateText(state: RunState): string {
  const others = state.unfinished.map(({ text }) => text);
  return [summary(state), ...reviewText(state), ...state.damage, ...attemptsText(state), ...others]
    .map(printable)
    .join("\n");
}

/** What the checks say, what was decided, and what a person can do. */
function reviewText({ verdict, decision, status, commands }: RunState): string[] {
  const published = status === "complete" ? [] : (verdict?.failed ?? []);
  const { kind, by, at, reason } = decision ?? {};
  return [
    ...published.map((line) => `  failed: ${line}`),
    ...(verdict?.warnings ?? []).map((line) => `  warning: ${line}`),
    ...(kind === undefined ? [] : [`  ${kind} by ${by} at ${at}${reason === null ? "" : `: ${reason}`}`]),
    ...commands.map((command) => `  ${command}`),
  ];
}

function summary({ runId, status, rowsPlanned, spansPlanned, spansCommitted, output }: RunState): string {
  if (status === "not_planned") {
    return `${runId}: not planned yet; nothing of it is in ${output}`;
  }
  if (spansPlanned === null || rowsPlanned === null) {
    return `${runId}: damaged, its plan is gone or unreadable -> ${output}`;
  }
  if (spansCommitted === null) {
    return `${runId}: damaged, ${count(spansPlanned, "span")} planned (${count(rowsPlanned, "row")}) -> ${output}`;
  }
  const progress = `${showCount(spansCommitted)} of ${count(spansPlanned, "span")} committed (${count(rowsPlanned, "row")})`;
  return `${runId}: ${status}, ${progress} -> ${output}`;
}

/** Lists the attempts in a table, if there are several. */
function attemptsText({ attempts }: RunState): string[] {
  if (attempts.length < 2) {
    return [];
  }
  return table(
    attempts.map(({ worker, workers, writer, spans }) => [`worker ${worker}/${workers}`, writer, count(spans, "span")]),
    { right: [2] },
  );
}
