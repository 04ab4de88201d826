import type { Verdict } from "../../checks/check.js";
import type { Plan } from "../../plan/plan.js";
import { leftOutText, olderModelText } from "../../publish/compared-text.js";
import { comparedFile, type RunVerdict } from "../../publish/run-verdict.js";
import { withSeparators } from "../../util/shown-numbers.js";
import { countResults, knownText, resultLines, toCorrect, warnedText } from "../../publish/verdict-text.js";
import { type DecidingCommands, decidingTexts } from "../../report/report.js";
import type { JobContext } from "../../scoring/context.js";
import type { RunSink } from "../../sink/port.js";
import { JobError } from "../../util/errors.js";
import { inputChanges, modelChanges, specChanges } from "./changed-since.js";
import { lostSpans } from "./lost-spans.js";
import { readersLine } from "./readers.js";

/** Changes since a run was held, other than those of the spec. */
export interface ChangesSince {
  /** Describes lost spans, without which the run cannot be published; undefined: none are lost. */
  readonly lost: string | undefined;
  /** Changes of the model's file and of the input's files, one line each. */
  readonly files: readonly string[];
}

export async function changesSince(context: JobContext, plan: Plan, run: RunSink): Promise<ChangesSince> {
  const lost = (await lostSpans(context, plan, run))?.message;
  return { lost, files: [...(await modelChanges(context, plan)), ...(await inputChanges(context, plan))] };
}

interface HeldRun {
  readonly verdict: RunVerdict;
  readonly commands: DecidingCommands;
  /** Default: changes are not looked for. */
  readonly since?: ChangesSince | undefined;
  /** The page of this attempt; absent: it writes none. */
  readonly page?: string | undefined;
}

/** The error that a command ends with if the run is held: what the checks found, and the commands that decide. */
export async function heldError(
  context: JobContext,
  plan: Plan,
  { verdict, commands, page: file, since }: HeldRun,
): Promise<JobError> {
  const { approve, discard, newRun, rejects, joinsBaseline, newer } = commands;
  const failed = countResults(verdict.verdict, "hold");
  const message = [
    `checking run ${plan.runId}: it is held and not published; ${failed} of ${countResults(verdict.verdict)} checks failed`,
    ...resultLines(verdict, "hold"),
    ...[
      warnedText(verdict.verdict),
      knownText(verdict.verdict, comparedFile(verdict)),
      plan.checks && leftOutText(plan.checks),
      plan.checks && olderModelText(plan.model, plan.checks),
    ].filter((line) => typeof line === "string"),
    ...specChanges(context, plan, verdict),
    ...(since?.lost === undefined ? [] : [since.lost]),
    ...(since?.files ?? []),
  ].join("\n  ");
  const readers = await readersLine(context, plan);
  const page = file === undefined ? "" : `, or at the page ${file}`;
  const texts = decidingTexts(commands);
  const restored = since?.lost === undefined ? "" : ", after you restore what is lost";
  const hint = [
    `${readers === undefined ? "" : `${readers}; `}look at ${toLookAt(context, plan, verdict.verdict)}${page}, then decide`,
    ...(newer === undefined ? [] : [newer]),
    ...(rejects === undefined ? [] : [`to see the rejected rows: ${rejects}`]),
    `${texts.approve}${restored}: ${approve}`,
    ...(joinsBaseline ? [`${texts.approve}${restored}, and ${texts.notNormal}: ${approve} --not-normal`] : []),
    `${texts.discard}: ${discard}`,
    `to score again, after you correct ${toCorrect(verdict.verdict)}: ${newRun}`,
  ].join("\n    ");
  return new JobError("HELD", message, { hint });
}

/** What shows the cause: where only the number of rows is unusual, no statistics of columns do. */
function toLookAt({ command }: JobContext, { params, input: { shards } }: Plan, { results }: Verdict): string {
  const [first] = shards;
  return first !== undefined && results.every(({ check, level }) => level !== "hold" || check === "rows")
    ? `its input (${shards.length === 1 ? "the file" : `${withSeparators(shards.length)} files, such as`} ${first.uri})`
    : `the statistics of its columns (${command(params, { verb: "stats" })})`;
}
