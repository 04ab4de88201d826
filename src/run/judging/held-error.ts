import type { Verdict } from "../../checks/check.js";
import { compareListing, compareSpec } from "../../plan/compare.js";
import { shortDigest } from "../../plan/identity.js";
import type { Plan } from "../../plan/plan.js";
import { leftOutText, olderModelText } from "../../publish/published-run.js";
import { comparedFile, type RunVerdict } from "../../publish/lifecycle.js";
import { countResults, knownText, resultLines, toCorrect, warnedText } from "../../publish/verdict-text.js";
import { count, type DecidingCommands, decidingTexts } from "../../report/report.js";
import type { JobContext } from "../../scoring/context.js";
import type { RunSink } from "../../sink/port.js";
import { modelUri } from "../../spec/model-spec.js";
import { isModelUri } from "../../spec/model-uri.js";
import { isObjectUri } from "../../spec/object-uri.js";
import { JobError, messageOf } from "../../util/errors.js";
import { withSeparators } from "../../util/shown-numbers.js";
import { listInput } from "../planning/input.js";
import { lostSpans } from "./lost-spans.js";
import { readersLine } from "./readers.js";

/** Changes since a run was held, other than those of the spec. */
export interface ChangesSince {
  /** Describes lost spans, without which the run cannot be published; undefined: none are lost. */
  readonly lost: string | undefined;
  /** Changes of the model's file and of the input's files, one line each. */
  readonly files: readonly string[];
}

/**
 * Finds what has changed. A store, a registry or a server is not asked: if it is away, the command would wait for it. A file
 * that is gone is no change.
 */
export async function changesSince(context: JobContext, plan: Plan, run: RunSink): Promise<ChangesSince> {
  const { spec, signal, log } = context;
  const lost = (await lostSpans(context, plan, run))?.message;
  const isModelHere = !isModelUri(modelUri(spec.model)) && spec.model.sha256 === undefined; // with it, no other file is scored
  const isInputHere = !plan.input.shards.some(({ uri }) => isObjectUri(uri));
  const files: string[] = [];
  for (const changes of [...(isModelHere ? [modelChanges] : []), ...(isInputHere ? [inputChanges] : [])]) {
    try {
      files.push(...(await changes(context, plan)));
    } catch (error) {
      signal.throwIfAborted();
      log.debug(`comparing the model and the input with the plan of a held run: ${messageOf(error)}`);
    }
  }
  return { lost, files };
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

/** Keys of `checks` that may change until a run has its verdict; `expect` may name other dates. */
const limits = ["on_fail", "factor", "rejects", "outputs", "unique", "inputs"] as const;

/** Says how the spec differs from the one that a run was planned and judged with, since only another run takes it into account. */
function specChanges(
  { spec }: Pick<JobContext, "spec">,
  plan: Plan,
  { thresholds }: Pick<RunVerdict, "thresholds">,
): string[] {
  const planned = compareSpec(plan, spec);
  const { checks } = spec;
  const changed = limits.filter((key) => checks !== undefined && textOf(thresholds[key]) !== textOf(checks[key]));
  return [
    ...(planned.length === 0
      ? []
      : [`the spec has changed since this run was planned (${planned.join("; ")}): run --new-run applies it`]),
    ...(changed.length === 0
      ? []
      : [
          `the limits in the spec are not those of this verdict (${changed.map((key) => `checks.${key}`).join(", ")}): run --new-run applies them`,
        ]),
  ];
}

/** Says how the input differs from that of a run. Nothing if none of its files is left. */
async function inputChanges(context: JobContext, plan: Plan): Promise<string[]> {
  const { shards } = await listInput(context);
  const { added, missing, changed } = compareListing(plan, shards);
  const differences = [
    [added.length, "added"],
    [changed.length, "replaced"],
    [missing.length, "removed"],
  ] as const;
  const texts = differences.flatMap(([files, what]) =>
    files === 0 ? [] : [`${count(files, "file")} ${files === 1 ? "was" : "were"} ${what}`],
  );
  return shards.length === 0 || texts.length === 0
    ? []
    : [`the input has changed since this run was planned (${texts.join(", ")}): run --new-run scores it`];
}

/** Says that the model is not that of a run. */
async function modelChanges({ spec, resolveModel }: JobContext, { model: planned }: Plan): Promise<string[]> {
  // With a pin: the model is not looked for to plan a run.
  const { model } = await resolveModel({ sha256: planned.sha256 });
  const digests = `sha256 ${shortDigest(model.sha256)}, planned ${shortDigest(planned.sha256)}`;
  return model.sha256 === planned.sha256
    ? []
    : [
        `the model has changed since this run was planned (${modelUri(spec.model)}: ${digests}): run --new-run scores with it`,
      ];
}

/** JSON with sorted keys, without those that are undefined. */
function textOf(value: unknown): string {
  return JSON.stringify(value, (_, one: unknown) =>
    typeof one === "object" && one !== null && !Array.isArray(one)
      ? Object.fromEntries(Object.entries(one).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : one,
  );
}
