import { runIdOf } from "../../plan/identity.js";
import { isMarkedKept } from "../../plan/kept-predictions.js";
import type { Plan, RunId } from "../../plan/plan.js";
import type { JobContext } from "../../scoring/context.js";
import type { UnfinishedRun } from "../../sink/port.js";
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
 * yesterday's.
 */
export async function unfinishedRuns(context: JobContext): Promise<UnfinishedText[]> {
  const { spec, sink, sha256 } = context;
  const found = await sink.unfinished(spec.name, runIdOf(spec.name, spec.params, sha256));
  const texts: UnfinishedText[] = [];
  for (const run of found.filter(({ plan }) => !isMarkedKept(plan))) {
    texts.push(await unfinishedText(context, run));
  }
  return texts;
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
