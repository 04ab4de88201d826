import type { Sink } from "../targets/target.js";
import { count } from "../base/shown-numbers.js";
import type { Plan, RunId } from "./plan/plan.js";
import {
  comparedDateOf,
  logicalDateOf,
  readersText,
  readersView,
  type ReadersView,
  replacedBy,
  runOfDate,
} from "./lifecycle/published-run.js";
import { compare, type RecordedRun } from "./lifecycle/recorded-run.js";
import { type DecidingCommands, type RolledBackReport } from "../report/report.js";
import type { Log, Job } from "../flow/opened-job.js";
import { runParam } from "../job/jobfile/job-spec.js";
import { limitParam } from "../job/jobfile/load.js";
import { JobError, messageOf, reworded } from "../base/errors.js";

/* What a person is told who may decide on a run, or finish one: what readers have, and the command lines to type. */

/** Finds what readers have while a run is held; undefined: it is not known. A failure is only logged. */
export async function readersOf(sink: Sink, log: Log, plan: Plan): Promise<ReadersView | undefined> {
  try {
    return readersView(await sink.published("here"), plan);
  } catch (error) {
    log.debug(`finding what readers have: ${messageOf(error)}`);
    return undefined;
  }
}

export async function readersLine(sink: Sink, log: Log, plan: Plan): Promise<string | undefined> {
  const readers = await readersOf(sink, log, plan);
  return readers && readersText(readers, plan);
}

/** What a report says of a published run whose rows a person has taken out of the table. */
export async function rolledBackReport(job: Job, sink: Sink, log: Log, plan: Plan): Promise<RolledBackReport> {
  const before = (await readersOf(sink, log, plan))?.run;
  return { readersHave: before && runOfDate(before, plan.dateParam), newRun: newRunCommand(job, plan) };
}

export function newRunCommand({ command }: Job, { params }: Pick<Plan, "params">): string {
  return `${command(params)} --new-run`;
}

/** The command line that scores the input of a discarded run again: of a chain, the next run reads its rows. */
export function againCommand(job: Job, plan: Pick<Plan, "params" | "input">): string {
  const { [runParam]: _, ...params } = plan.params;
  return plan.input.changes === undefined ? newRunCommand(job, plan) : job.command(params);
}

/** Whether the rows of a run would overwrite those of a newer one, so that publishing it takes `--allow-older`. */
function overwrites({ target }: Pick<Plan, "target">): boolean {
  return ["equal keys", "all"].includes(replacedBy(target));
}

/** How an erasure ends that is not finished. Only the person who began it has the file of its keys. */
export const eraseAgain = "the same infer-batch erase again finishes or replaces it";

export function finishingHint({ command }: Job, plan: Plan): string {
  if (plan.erasure !== undefined) {
    return eraseAgain;
  }
  const older = overwrites(plan) ? " (with --allow-older, if a run of a later date has published to the table)" : "";
  return `${command(plan.params)} finishes it${older}`;
}

export function decidingCommands(job: Job, plan: Plan): DecidingCommands {
  const { runId, params, checks } = plan;
  return {
    approve: job.command(params, { verb: "approve", runId }),
    discard: job.command(params, { verb: "discard", runId }),
    newRun: newRunCommand(job, plan),
    joinsBaseline: comparedDateOf(plan) !== undefined && checks?.profile === undefined,
    newer: overwrites(plan)
      ? "once a run of a later date has published to this table, publishing this one takes --allow-older"
      : undefined,
  };
}

export function scoringAgainText(job: Job, sink: Sink, plan: Plan): string {
  if (replacedBy(sink.planTarget) === "nothing") {
    const which = plan.contract.lineage === true ? `, those with run_id ${plan.runId}` : "";
    return `delete its rows from ${sink.target}${which}, then score again: ${newRunCommand(job, plan)} --allow-duplicates`;
  }
  return `score again, which replaces its predictions: ${newRunCommand(job, plan)}`;
}

/** Whoever makes the error, such as a target, does not know the spec. */
export function spellOut<T>(job: Job, error: T): T | JobError {
  if (!(error instanceof JobError) || error.hint === undefined || error.hint.includes("infer-batch run ")) {
    return error;
  }
  return reworded(error, { hint: error.hint.replaceAll(/(\brun )?--new-run/g, newRunCommand(job, job.spec)) });
}

export interface UnfinishedText {
  readonly runId: RunId;
  readonly params: Plan["params"];
  /** Whether its checks hold it. */
  readonly isHeld: boolean;
  /** The command that finishes it; for a held run, the one that publishes it. */
  readonly command: string;
  readonly text: string;
}

/** Plans can be large, and a long list helps no reader. */
const unfinishedLimit = 20;

/**
 * A retry after midnight of a job with `${today}` is another run. The latest date comes last, else in the sink's order.
 */
export async function unfinishedRuns(job: Job, sink: Sink): Promise<UnfinishedText[]> {
  if (job.spec.input.since !== undefined) {
    return []; // of a chain, the last run alone can be open
  }
  const recorded = await sink.history({ job: job.spec.name, last: unfinishedLimit, unfinishedBut: job.base });
  return recorded
    .toReversed()
    .flatMap(({ plan, ...run }) => (plan ? [{ ...run, plan }] : []))
    .toSorted((left, right) => compare(logicalDateOf(left.plan) ?? "", logicalDateOf(right.plan) ?? ""))
    .map((run) => unfinishedText(job, sink, run));
}

/** The sentence about unfinished runs: the latest with its commands, how many more there are, and what lists them. */
export function unfinishedLines({ spec, command, dateParam }: Job, runs: readonly UnfinishedText[]): string[] {
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

function unfinishedText(
  job: Job,
  sink: Sink,
  { plan, place, status, gone }: RecordedRun & { readonly plan: Plan },
): UnfinishedText {
  const { runId, params, erasure } = plan;
  const { approve, discard, newRun } = decidingCommands(job, plan);
  const later = overwrites(plan) ? " (with --allow-older, once a run of a later date is published)" : "";
  const told = (command: string, text: string): UnfinishedText => ({
    runId,
    params,
    isHeld: status === "held",
    command,
    text: `run ${runId} in ${place} ${text}`,
  });
  if (gone !== undefined) {
    const command = replacedBy(sink.planTarget) === "nothing" ? `${newRun} --allow-duplicates` : newRun;
    const found = `is not finished, and its rows there are gone: ${gone}`;
    return told(command, `${found}; to score it again: ${command}${later}`);
  }
  if (status === "held") {
    return told(approve, `is held by its checks; to publish it: ${approve}${later}; to throw it away: ${discard}`);
  }
  if (erasure !== undefined) {
    return told(newRun, `is an erasure that is not finished; ${eraseAgain}; to score all rows instead: ${newRun}`);
  }
  const command = job.command(params);
  return told(command, `is not finished; to finish it: ${command}${later}`);
}
