import { countCommitted, isWorkedOn, lastFailure } from "./attempt.js";
import { JobError, exitCodes } from "../util/errors.js";
import {
  type ListedShard,
  type ListingChange,
  compareListing,
  compareSpec,
  compareTargets,
  pinDifference,
  restoreHint,
  touchHint,
} from "../plan/compare.js";
import { runIdOf } from "../plan/identity.js";
import type { Plan, PlannedShard } from "../plan/plan.js";
import type { AttemptFailure } from "../publish/recorded-run.js";
import { replacedBy } from "../publish/published-run.js";
import type { Opening, RunSink, StoredPlan } from "../sink/port.js";
import { modelUri } from "../spec/model-spec.js";
import type { JobContext } from "../scoring/context.js";
import {
  type FoundDigests,
  digestsIfThere,
  digestsOf,
  openPinnedModel,
  plannedModel,
  tokenizerDifference,
} from "./model.js";
import type { Model } from "../models/port.js";
import type { LatestRun } from "../publish/lifecycle.js";
import type { Listing } from "../storage/port.js";
import { pinGolden, requirePinned } from "./golden.js";
import { requireColumns } from "./checked-output.js";
import { isIdle } from "./score-and-finish.js";
import { spanCount } from "../plan/spans.js";

const shownLimit = 5;

/** Whether a run is finished, as it was when it was opened. */
export function isPublished({ state }: Pick<RunSink, "state">): boolean {
  return state.kind === "published";
}

/** Checks that the spec is still that of the plan. @throws JobError PLAN_CHANGED (66), naming the keys that changed */
export function checkSpec(context: JobContext, plan: Plan, run: Pick<RunSink, "state">): void {
  const { spec, sink } = context;
  const { lines, isElsewhere } = compareTargets(plan.target, sink.planTarget);
  const differences = [...compareSpec(plan, spec), ...lines];
  if (differences.length > 0) {
    throw new JobError(
      "PLAN_CHANGED",
      `comparing the spec with the plan of ${nameOf(run)}: ${differences.join("; ")}`,
      {
        hint: isElsewhere ? elsewhereHint(context, plan, run) : hintOf(context, plan, run),
      },
    );
  }
}

/**
 * Refuses to show a run that another job with the same name has made, or to decide on it.
 * @throws JobError PLAN_CHANGED, as `checkSpec`, if its rows are elsewhere
 */
export function requireOwn(context: JobContext, plan: Plan, run: Pick<RunSink, "state">): void {
  refuseElsewhere(context, plan, run);
}

/** Refuses a run of the same name whose rows are elsewhere. @throws JobError PLAN_CHANGED */
export function refuseElsewhere(context: JobContext, plan: Plan, run: Pick<RunSink, "state">): void {
  if (compareTargets(plan.target, context.sink.planTarget).isElsewhere) {
    checkSpec(context, plan, run);
  }
}

/** Opens a run that `requireOwn` admits. @throws JobError also those of `Sink.open` */
export async function openOwn(context: JobContext, stored: StoredPlan, how?: Opening): Promise<RunSink> {
  // Before `open`, which fails for a damaged run: --new-run must not replace another job's run.
  const run = await context.sink.open(stored, how);
  refuseElsewhere(context, stored.plan, run);
  return run;
}

/** Makes the error for params that no run is planned for. @param act what cannot be done: "discarding" */
export function notPlanned({ spec, sha256, command }: JobContext, act: string): JobError {
  return new JobError("USAGE", `${act} run ${runIdOf(spec.name, spec.params, sha256)}: it is not planned`, {
    hint: `${command(spec.params)} scores it; another run of the job has other params`,
  });
}

/** The hint for a run of another table: the other job keeps the name, or it would score and add its rows again. */
function elsewhereHint(context: JobContext, plan: Plan, run: Pick<RunSink, "state">): string {
  const { runId, job, target } = plan;
  const table = String(target["table"]);
  const shared = `if another job is called ${job}, too, give this job another name: the other one has run ${runId} for ${table}`;
  const again = `${context.command(plan.params)} --new-run`;
  if (run.state.kind === "published") {
    return hintOf(context, plan, run, [shared]);
  }
  return run.state.kind === "discarded"
    ? `${shared}; else score again, into ${context.sink.target}: ${again}`
    : [
        shared,
        `else name ${table} again and run again`,
        `or, if ${table} is gone, abandon this run, and start over: ${again}`,
      ].join("\n    ");
}

/**
 * Whether a changed spec, model or input may begin a new run as if `--new-run` were given: an attempt has ended with an
 * error that such a change cures, nothing is committed, and no other attempt may be working on the run. Not where
 * answers were paid for, which the old run keeps, nor where the target differs: another job may have the same name.
 */
export async function hasOnlyFailed(context: JobContext, plan: Plan, run: RunSink): Promise<boolean> {
  const { spec, sink, worker } = context;
  return (
    worker.count === 1 &&
    countCommitted(run) === 0 &&
    spec.model.prompt === undefined &&
    plan.request.prompt === undefined &&
    compareTargets(plan.target, sink.planTarget).lines.length === 0 &&
    isCorrectable(await lastFailure(sink, plan.runId)) &&
    !(await isWorkedOn(context, plan.runId))
  );
}

/** Whether a person corrects what ended the attempt: not a signal, nor what a retry cures, nor a change that was refused. */
function isCorrectable(failure: AttemptFailure | undefined): boolean {
  const codes: Readonly<Record<string, number>> = exitCodes;
  return failure !== undefined && [64, 65].includes(codes[failure.code] ?? 0);
}

function nameOf(run: Pick<RunSink, "state">): string {
  const kinds: Partial<Record<string, string>> = { published: "finished", discarded: "discarded" };
  return `this ${kinds[run.state.kind] ?? "unfinished"} run`;
}

/**
 * Checks that model, tokenizers and input are still those of the plan. Returns how many files were added since.
 * @throws JobError INPUT_CHANGED or MODEL_CHANGED (66), saying exactly what changed
 */
export function checkPins(
  context: JobContext,
  plan: Plan,
  run: RunSink,
  found: FoundDigests & { readonly listed: readonly ListedShard[] },
): number {
  const { spec, log } = context;
  const where = nameOf(run);
  if (found.modelSha256 !== undefined && found.modelSha256 !== plan.model.sha256) {
    const difference =
      spec.model.server === undefined
        ? `its sha256 is ${found.modelSha256}, planned ${plan.model.sha256}`
        : "its inputs, outputs or requests are not those planned";
    throw new JobError("MODEL_CHANGED", `comparing ${modelUri(spec.model)} with the plan of ${where}: ${difference}`, {
      hint: hintOf(context, plan, run),
    });
  }
  checkTokenizers(context, plan, run, found);
  const change = compareListing(plan, found.listed);
  const broken = isPublished(run) ? { ...change, missing: [] } : { ...pendingOf(plan, run.spans, change), added: [] };
  if (broken.added.length + broken.missing.length + broken.changed.length > 0) {
    throw changedInput(context, { plan, run, broken, listed: found.listed });
  }
  if (change.added.length > 0) {
    const added = describe({ added: change.added, missing: [], changed: [] });
    log.warn(`${added} since this run was planned, and not part of it`);
  }
  if (typeof spec.commit_rows === "number" && spec.commit_rows !== plan.commitRows) {
    log.warn(
      `commit_rows stays ${plan.commitRows}, as this run was planned; ${spec.commit_rows} applies from the next run on`,
    );
  }
  return change.added.length;
}

/** Checks that tokenizers are those of the plan. @throws JobError MODEL_CHANGED */
function checkTokenizers(context: JobContext, plan: Plan, run: RunSink, found: FoundDigests): void {
  const changed = tokenizerDifference(plan.model, found.tokenizers);
  if (changed !== undefined) {
    const { uri, difference } = changed;
    throw new JobError("MODEL_CHANGED", `comparing tokenizer ${uri} with the plan of ${nameOf(run)}: ${difference}`, {
      hint: hintOf(context, plan, run),
    });
  }
}

/** Makes the error for changed shards; it says what is different in the first one. */
function changedInput(
  context: JobContext,
  {
    plan,
    run,
    broken,
    listed,
  }: {
    readonly plan: Plan;
    readonly run: RunSink;
    readonly broken: ListingChange;
    readonly listed: readonly ListedShard[];
  },
): JobError {
  const now = new Map(listed.map((shard) => [shard.uri, shard]));
  const found = broken.changed.flatMap((shard) => {
    const other = now.get(shard.uri);
    return other === undefined ? [] : [{ shard, now: other }];
  });
  const [first] = found;
  const differs = describe(broken, first && pinDifference(first.shard, first.now));
  const restore = isPublished(run) ? [] : [first === undefined ? restoreAll : restoreHint(first.shard)];
  const touch = found.map(({ shard, now: other }) => touchHint(shard, other, context.pathOf(shard.uri)));
  const onlyTimes =
    broken.added.length + broken.missing.length === 0 && !touch.includes(undefined)
      ? touch.filter((line) => line !== undefined)
      : [];
  const more = onlyTimes.length > shownLimit ? [`and so on, ${onlyTimes.length - shownLimit} more files`] : [];
  return new JobError("INPUT_CHANGED", `comparing the input with the plan of ${nameOf(run)}: ${differs}`, {
    hint: hintOf(context, plan, run, [...restore, ...onlyTimes.slice(0, shownLimit), ...more]),
  });
}

const restoreAll = "restore what was planned and run again";

/** Returns the hint for a difference. @param restore how to undo it */
function hintOf(
  context: Pick<JobContext, "sink" | "command">,
  plan: Plan,
  run: Pick<RunSink, "state">,
  restore: readonly string[] = isPublished(run) ? [] : [restoreAll],
): string {
  const asItIs = "with the current input, model and spec";
  const lines = isPublished(run)
    ? [
        "the finished predictions are untouched",
        ...restore,
        `to score again ${asItIs}, which ${replacedBy(context.sink.planTarget) === "nothing" ? "adds to them" : "then replaces them"}`,
      ]
    : [...restore, `to abandon this run, and score ${asItIs}`];
  return `${lines.join("\n    ")}: ${newRunCommand(context, plan)}`;
}

function newRunCommand({ sink, command }: Pick<JobContext, "sink" | "command">, { params }: Plan): string {
  return `${command(params)} --new-run${replacedBy(sink.planTarget) === "nothing" ? " --allow-duplicates" : ""}`;
}

/** Keeps the changes that concern rows that are not committed yet. */
function pendingOf(
  plan: Plan,
  committed: RunSink["spans"],
  change: ListingChange,
): Pick<ListingChange, "missing" | "changed"> {
  const pending = pendingShards(plan, committed, [...change.missing, ...change.changed]);
  return {
    missing: change.missing.filter((shard) => pending.has(shard)),
    changed: change.changed.filter((shard) => pending.has(shard)),
  };
}

/** Returns the shards with rows that are not committed yet. */
function pendingShards(
  plan: Plan,
  committed: RunSink["spans"],
  shards: readonly PlannedShard[],
): ReadonlySet<PlannedShard> {
  const asked = new Set(shards);
  const pending = new Set<PlannedShard>();
  let start = 0;
  for (const shard of plan.input.shards) {
    const end = start + shard.rows;
    if (asked.has(shard) && shard.rows > 0) {
      const [from, to] = [Math.floor(start / plan.commitRows), Math.ceil(end / plan.commitRows)];
      if (Array.from({ length: to - from }, (_, at) => from + at).some((span) => !committed.has(span))) {
        pending.add(shard);
      }
    }
    start = end;
  }
  return pending;
}

/** Describes a change of the listing. @param found how the first changed shard differs */
function describe({ added, missing, changed }: ListingChange, found?: string): string {
  return [
    ...named(
      "missing",
      missing.map(({ uri }) => uri),
    ),
    ...named(
      "changed since it was planned:",
      changed.map(({ uri }, index) => (index === 0 && found !== undefined ? `${uri} (${found})` : uri)),
    ),
    ...named("added", added),
  ].join("; ");
}

function named(what: string, uris: readonly string[]): string[] {
  if (uris.length === 0) {
    return [];
  }
  const shown = uris.slice(0, shownLimit).join(", ");
  return [`${what} ${shown}${uris.length > shownLimit ? ` and ${uris.length - shownLimit} more` : ""}`];
}

/** A run that is planned, with its input as it is now. */
export interface PlannedRun {
  readonly stored: StoredPlan;
  readonly run: RunSink;
  readonly listing: Listing;
}

/** What is known of a run that decides what becomes of it. */
export function latestRun({ stored, run }: Omit<PlannedRun, "listing">): LatestRun {
  return {
    state: run.state,
    isErasure: stored.plan.erasure !== undefined,
    isWhole: run.spans.size === spanCount(stored.plan),
  };
}

/** What an attempt that resumes a run needs to know. */
export interface Resumable {
  /** undefined: no row is left to score, so that it is not needed. */
  readonly model: Model | undefined;
  readonly shardsUnplanned: number;
}

/**
 * Checks that spec, model, tokenizers, input, golden rows of an unfinished run are those of its plan.
 * @throws JobError PLAN_CHANGED, MODEL_CHANGED, INPUT_CHANGED (66), those of loading the model, and SPEC_INVALID for limits
 * that may have changed
 */
export async function checkResumable(context: JobContext, { stored, run, listing }: PlannedRun): Promise<Resumable> {
  const { plan } = stored;
  // Answers of a language model are counted, and compared, before the run is finished.
  const idle = plan.request.prompt === undefined && isIdle(context, { stored, run });
  checkSpec(context, plan, run); // before the model is loaded, so that a change is reported at once
  requireColumns(context, plan.contract);
  const planned = plannedModel(context, plan);
  const model = idle ? undefined : (await openPinnedModel(context, planned)).model;
  const digests = model === undefined ? await digestsIfThere(context, planned) : digestsOf(model);
  const shardsUnplanned = checkPins(context, plan, run, { listed: listing.shards, ...digests });
  requirePinned(plan, idle ? undefined : await pinGolden(context));
  return { model, shardsUnplanned };
}

/**
 * Checks that spec, model, tokenizers and input of a published run are those of its plan.
 * @throws JobError PLAN_CHANGED, MODEL_CHANGED, INPUT_CHANGED (66)
 */
export async function checkPublished(
  context: JobContext,
  { stored: { plan }, run, listing }: PlannedRun,
): Promise<void> {
  checkSpec(context, plan, run);
  checkPins(context, plan, run, { listed: listing.shards, ...(await digestsIfThere(context)) });
}
