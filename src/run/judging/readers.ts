import type { Plan } from "../../plan/plan.js";
import { logicalDateOf } from "../../publish/published-run.js";
import { readersText, type ReadersView, runOfDate } from "../../publish/readers-view.js";
import type { JobContext } from "../../scoring/context.js";
import type { DecidingCommands, RolledBackReport } from "../../report/report.js";
import { messageOf } from "../../util/errors.js";

type Tools = Pick<JobContext, "sink" | "log">;

/** Finds what readers have while a run is held; undefined: it is not known. A failure is only logged. */
export async function readersOf({ sink, log }: Tools, plan: Plan): Promise<ReadersView | undefined> {
  try {
    return await sink.visible?.(plan);
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
export async function newerRunOf({ sink, log }: Tools, plan: Plan): Promise<string | undefined> {
  try {
    return await sink.newer?.(plan);
  } catch (error) {
    log.debug(`looking for a newer run than ${plan.runId}: ${messageOf(error)}`);
    return undefined;
  }
}

/** Says that the rows of a newer run would be replaced. */
export function newerText(newer: string): string {
  return `run ${newer} is newer, and readers have its rows: to publish this run replaces them, which takes --allow-older`;
}

/** The option that lets a command replace the rows of a newer run. */
export const allowOlder = " --allow-older";

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
    newer,
  };
}
