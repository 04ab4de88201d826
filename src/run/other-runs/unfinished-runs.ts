import { runIdOf } from "../../plan/identity.js";
import type { Plan, RunId } from "../../plan/plan.js";
import { logicalDateOf, replacedBy } from "../../publish/published-run.js";
import { compare, type RecordedRun } from "../../publish/recorded-run.js";
import { count } from "../../report/report.js";
import type { JobContext } from "../../scoring/context.js";
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

/** Plans can be large, and a long list helps no reader. */
const unfinishedLimit = 20;

/**
 * Finds other unfinished runs of the job: a retry after midnight of a job with `${today}` is another run than
 * yesterday's. The run of the latest date is the last. Of runs without a date, or of one date, the sink knows the order.
 */
export async function unfinishedRuns(context: JobContext): Promise<UnfinishedText[]> {
  const { spec, sink, sha256 } = context;
  const unfinishedBut = runIdOf(spec.name, spec.params, sha256);
  const found = await sink.history({ job: spec.name, last: unfinishedLimit, unfinishedBut });
  const texts: UnfinishedText[] = [];
  const own = found.toReversed().flatMap(({ plan, ...run }) => (plan ? [{ ...run, plan }] : []));
  for (const run of own.toSorted((left, right) => compare(dateOf(left), dateOf(right)))) {
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

function dateOf({ plan }: { readonly plan: Plan }): string {
  return logicalDateOf(plan) ?? "";
}

async function unfinishedText(
  context: JobContext,
  { plan, place, status, gone }: RecordedRun & { readonly plan: Plan },
): Promise<UnfinishedText> {
  const { runId, params } = plan;
  const isHeld = status === "held";
  if (!isHeld && gone === undefined) {
    const { command: next } = await finishingCommand(context, plan);
    const isErasure = plan.erasure !== undefined;
    const command = isErasure ? `${next} --new-run` : next;
    const text = isErasure
      ? `is an erasure that is not finished; ${eraseAgain}; to score all rows instead: ${command}`
      : `is not finished; to finish it: ${command}`;
    return { runId, params, isHeld, command, text: `run ${runId} in ${place} ${text}` };
  }
  const { approve, discard, newRun, newer } = await decidingCommands(context, plan);
  const later =
    newer === undefined && overwrites(plan) ? " (with --allow-older, once a run of a later date is published)" : "";
  if (gone !== undefined) {
    const command = replacedBy(context.sink.planTarget) === "nothing" ? `${newRun} --allow-duplicates` : newRun;
    const text = `run ${runId} in ${place} is not finished, and its rows there are gone: ${gone}; to score it again: ${command}${later}`;
    return { runId, params, isHeld, command, text };
  }
  const text = `run ${runId} in ${place} is held by its checks; to publish it: ${approve}${later}; to throw it away: ${discard}`;
  return { runId, params, isHeld, command: approve, text };
}

/** Whether the rows of a run would overwrite those of a newer one, so that publishing it takes `--allow-older`. */
function overwrites({ target }: Pick<Plan, "target">): boolean {
  return ["equal keys", "all"].includes(replacedBy(target));
}
