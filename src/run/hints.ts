import type { Plan, RunId } from "../plan/plan.js";
import {
  type ReadersView,
  logicalDateOf,
  readersText,
  readersView,
  replacedBy,
  runOfDate,
} from "../publish/published-run.js";
import type { JobContext } from "../scoring/context.js";
import { type DecidingCommands, type RolledBackReport, count } from "../report/report.js";
import { JobError, messageOf, reworded } from "../util/errors.js";
import { runIdOf } from "../plan/identity.js";
import { type RecordedRun, compare } from "../publish/recorded-run.js";
import { limitParam } from "../spec/load.js";

type Tools = Pick<JobContext, "sink" | "log">;

/** Finds what readers have while a run is held; undefined: it is not known. A failure is only logged. */
export async function readersOf({ sink, log }: Tools, plan: Plan): Promise<ReadersView | undefined> {
  try {
    return readersView(await sink.published("here"), plan);
  } catch (error) {
    log.debug(`finding what readers have: ${messageOf(error)}`);
    return undefined;
  }
}

/** Says in a sentence what readers have while a run is held; undefined: it is not known. */
export async function readersLine(tools: Tools, plan: Plan): Promise<string | undefined> {
  const readers = await readersOf(tools, plan);
  return readers && readersText(readers, plan);
}

/** What a report says of a published run whose rows a person has taken out of the table. */
export async function rolledBackReport(
  context: Tools & Pick<JobContext, "command">,
  plan: Plan,
): Promise<RolledBackReport> {
  const found = (await readersOf(context, plan))?.run;
  const { newRun } = await decidingCommands(context, plan);
  return { readersHave: found && runOfDate(found, plan.dateParam), newRun };
}

/** Finds the newer run whose rows publishing this run would replace; undefined: none, or it is not known. */
async function newerRunOf({ sink, log }: Tools, plan: Plan): Promise<string | undefined> {
  try {
    return await sink.table?.newer(plan);
  } catch (error) {
    log.debug(`looking for a newer run than ${plan.runId}: ${messageOf(error)}`);
    return undefined;
  }
}

/** Says what publishing a run may replace, although a newer one has published to its table. */
function newerText(newer: string, { target }: Pick<Plan, "target">): string {
  return replacedBy(target) === "all"
    ? `run ${newer} is newer and has published to this table: publishing this run replaces the whole table, which takes --allow-older`
    : `run ${newer} is newer and has published rows in this table: publishing this run replaces rows with the same keys, which takes --allow-older`;
}

/** The option that lets a command replace the rows of a newer run. */
const allowOlder = " --allow-older";

/** The command that carries out an unfinished run. */
interface FinishingCommand {
  readonly command: string;
  /** Says that a newer run has published to the table; undefined: none has, or it is not known. */
  readonly newer: string | undefined;
}

/** The command line that finishes an unfinished run, with `--allow-older` where it is refused without. */
export async function finishingCommand(
  context: Tools & Pick<JobContext, "command">,
  plan: Plan,
): Promise<FinishingCommand> {
  const newer = await newerRunOf(context, plan);
  return {
    command: `${context.command(plan.params)}${newer === undefined ? "" : allowOlder}`,
    newer: newer && newerText(newer, plan),
  };
}

/** How an erasure ends that is not finished. Only the person who began it has the file of its keys. */
export const eraseAgain = "the same infer-batch erase again finishes or replaces it";

/** A hint that names the command which finishes an unfinished run. */
export async function finishingHint(context: Tools & Pick<JobContext, "command">, plan: Plan): Promise<string> {
  if (plan.erasure !== undefined) {
    return eraseAgain;
  }
  const { command, newer } = await finishingCommand(context, plan);
  return newer === undefined ? `${command} finishes it` : `${command} finishes it; ${newer}`;
}

/** The command lines that decide on a held run. Those that replace the rows of a newer run say so. */
export async function decidingCommands(
  context: Tools & Pick<JobContext, "command">,
  plan: Plan,
): Promise<DecidingCommands> {
  const { runId, params, checks } = plan;
  const { command } = context;
  const newer = await newerRunOf(context, plan);
  const older = newer === undefined ? "" : allowOlder;
  return {
    approve: `${command(params, { verb: "approve", runId })}${older}`,
    discard: command(params, { verb: "discard", runId }),
    newRun: `${command(params)} --new-run${older}`,
    joinsBaseline: logicalDateOf(plan) !== undefined && checks?.profile === undefined,
    newer: newer && newerText(newer, plan),
  };
}

/** Says how to score a published run again, so that its predictions give way to the new ones. */
export async function scoringAgainText(context: Tools & Pick<JobContext, "command">, plan: Plan): Promise<string> {
  const { sink, command } = context;
  const { runId, params, contract } = plan;
  if (replacedBy(sink.planTarget) === "nothing") {
    const which = contract.lineage === true ? `, those with run_id ${runId}` : "";
    return `delete its rows from ${sink.target}${which}, then score again: ${command(params)} --new-run --allow-duplicates`;
  }
  const { newRun, newer } = await decidingCommands(context, plan);
  return `score again, which replaces its predictions: ${newRun}${newer === undefined ? "" : `; ${newer}`}`;
}

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

/**
 * Writes `--new-run` in the hint of an error as the command line to type. Who makes the error, such as a target, does not
 * know the spec.
 */
export function spellOut<T>({ command, spec }: Pick<JobContext, "command" | "spec">, error: T): T | JobError {
  if (!(error instanceof JobError) || error.hint === undefined || error.hint.includes("infer-batch run ")) {
    return error;
  }
  const hint = error.hint.replaceAll(/(\brun )?--new-run/g, `${command(spec.params)} --new-run`);
  return reworded(error, { hint });
}
