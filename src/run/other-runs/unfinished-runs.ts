import { runIdOf } from "../../plan/identity.js";
import type { Plan, RunId } from "../../plan/plan.js";
import { logicalDateOf } from "../../publish/published-run.js";
import { count } from "../../report/report.js";
import type { JobContext } from "../../scoring/context.js";
import type { UnfinishedRun } from "../../sink/port.js";
import { limitParam } from "../../spec/limited-spec.js";
import { decidingCommands, eraseAgain, finishingCommand } from "../judging/readers.js";

export interface UnfinishedText {
  readonly runId: RunId;
  readonly params: Plan["params"];
  /** Whether its checks hold it. */
  readonly isHeld: boolean;
  /** The command that finishes it; for a held run, the one that publishes it. */
  readonly command: string;
  /** A sentence for people. */
  readonly text: string;
}

/**
 * Finds other unfinished runs of the job: a retry after midnight of a job with `${today}` is another run than
 * yesterday's. The run of the latest date is the last. Of runs without a date, or of one date, the sink knows the order.
 */
export async function unfinishedRuns(context: JobContext): Promise<UnfinishedText[]> {
  const { spec, sink, sha256 } = context;
  const unfinished = await sink.unfinished(spec.name, runIdOf(spec.name, spec.params, sha256));
  const texts: UnfinishedText[] = [];
  for (const run of unfinished.toSorted((one, other) =>
    dateOf(one) < dateOf(other) ? -1 : dateOf(one) > dateOf(other) ? 1 : 0,
  )) {
    texts.push(await unfinishedText(context, run));
  }
  return texts;
}

/** The sentence about unfinished runs: the latest with its commands, how many more there are, and what lists them. */
export function unfinishedLines(
  { spec, command, dateParam }: Pick<JobContext, "spec" | "command" | "dateParam">,
  runs: readonly UnfinishedText[],
): string[] {
  const latest = runs.at(-1);
  const others = runs.slice(0, -1);
  if (latest === undefined || others.length === 0) {
    return latest === undefined ? [] : [latest.text];
  }
  const held = others.filter(({ isHeld }) => isHeld).length;
  const parts = [
    [held, "held"],
    [others.length - held, "not finished"],
  ] as const;
  const what = parts
    .filter(([number]) => number > 0)
    .map(([number, state]) => `${count(number, "more run")} ${number === 1 ? "is" : "are"} ${state}`);
  // A table may be named by other params; the date is left out, since the runs of all dates are listed.
  const given = Object.entries(spec.params).filter(([name]) => name !== dateParam && name !== limitParam);
  const listing = command(Object.fromEntries(given), { verb: "history" });
  return [`${latest.text}; ${what.join(", ")}; to list them: ${listing}`];
}

function dateOf({ plan }: UnfinishedRun): string {
  return logicalDateOf(plan) ?? "";
}

async function unfinishedText(
  context: JobContext,
  { plan, target, held = false, gone }: UnfinishedRun,
): Promise<UnfinishedText> {
  const { runId, params } = plan;
  if (!held && gone === undefined) {
    const { command: next } = await finishingCommand(context, plan);
    const isErasure = plan.erasure !== undefined;
    const command = isErasure ? `${next} --new-run` : next;
    const text = isErasure
      ? `is an erasure that is not finished; ${eraseAgain}; to score all rows instead: ${command}`
      : `is not finished; to finish it: ${command}`;
    return { runId, params, isHeld: held, command, text: `run ${runId} in ${target} ${text}` };
  }
  const { approve, discard, newRun, newer } = await decidingCommands(context, plan);
  const later =
    newer === undefined && overwrites(plan) ? " (with --allow-older, once a run of a later date is published)" : "";
  if (gone !== undefined) {
    const command = context.sink.newRunAdds ? `${newRun} --allow-duplicates` : newRun;
    const text = `run ${runId} in ${target} is not finished, and its rows there are gone: ${gone}; to score it again: ${command}${later}`;
    return { runId, params, isHeld: held, command, text };
  }
  const text = `run ${runId} in ${target} is held by its checks; to publish it: ${approve}${later}; to throw it away: ${discard}`;
  return { runId, params, isHeld: held, command: approve, text };
}

/** Whether the rows of a run would overwrite those of a newer one, so that publishing it takes `--allow-older`. */
function overwrites({ target: { mode } }: Pick<Plan, "target">): boolean {
  return mode === "upsert" || mode === "replace";
}
