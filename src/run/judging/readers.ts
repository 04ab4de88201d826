import type { Plan } from "../../plan/plan.js";
import {
  logicalDateOf,
  readersText,
  readersView,
  type ReadersView,
  replacedBy,
  runOfDate,
} from "../../publish/published-run.js";
import type { JobContext } from "../../scoring/context.js";
import type { DecidingCommands, RolledBackReport } from "../../report/report.js";
import { messageOf } from "../../util/errors.js";

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
export interface FinishingCommand {
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
