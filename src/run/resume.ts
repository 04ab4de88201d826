import { exitCodes, JobError } from "../base/errors.js";
import type { Attempt, Job, Log, OpenedJob } from "../flow/opened-job.js";
import type { JobSpec } from "../job/jobfile/job-spec.js";
import { modelUri } from "../job/jobfile/model-spec.js";
import type { Listing } from "../sources/source.js";
import type { Opening, RunSink, Sink, StoredPlan } from "../targets/target.js";
import { isWhole, isWorkedOn, lastFailure } from "./attempt.js";
import { digestsIfThere, type FoundDigests, tokenizerDifference } from "./find-model.js";
import { newRunCommand } from "./hints.js";
import type { LatestRun } from "./lifecycle/lifecycle.js";
import { replacedBy } from "./lifecycle/published-run.js";
import {
  compareListing,
  compareSpec,
  compareTargets,
  type ListedShard,
  type ListingChange,
  pinDifference,
  restoreHint,
  touchHint,
} from "./plan/compare.js";
import type { PlannedShard } from "./plan/plan.js";
import type { SpanRange } from "./plan/spans.js";
import { prunedError, type Pruning } from "./lifecycle/pruned-run.js";

/* Whether a planned run may go on: spec, model and input are compared with its plan. */

const shownLimit = 5;

type PlannedRun = Pick<RunSink, "plan" | "state">;

/** What is known of a run that decides what becomes of it. */
export function latestRun(run: RunSink): LatestRun {
  return { state: run.state, isErasure: run.plan.erasure !== undefined, isWhole: isWhole(run) };
}

/** Rows of a range of spans that are not committed. */
export function pendingRows({ plan, spans }: Pick<RunSink, "plan" | "spans">, { from, to }: SpanRange): number {
  let rows = 0;
  for (let index = from; index < to; index += 1) {
    if (!spans.has(index)) {
      rows += Math.max(0, Math.min(plan.commitRows, plan.input.rows - index * plan.commitRows));
    }
  }
  return rows;
}

/**
 * Checks that spec, model, tokenizers and input of a published run are those of its plan.
 * @throws JobError PLAN_CHANGED, MODEL_CHANGED, INPUT_CHANGED (66)
 */
export async function checkPublished(opened: OpenedJob, run: RunSink, listing: Listing): Promise<void> {
  const { job, sink, models, reporter } = opened;
  checkSameSpec(job, sink, run);
  checkPins(job, sink, reporter.log, run, { listed: listing.shards, ...(await digestsIfThere(job, models)) });
}

/** Checks that the spec is still that of the plan. @throws JobError PLAN_CHANGED (66), naming the keys that changed */
export function checkSameSpec(job: Job, sink: Sink, run: PlannedRun): void {
  const { lines, isElsewhere } = compareTargets(run.plan.target, sink.planTarget);
  const differences = [...compareSpec(run.plan, job.spec), ...lines];
  if (differences.length > 0) {
    const found = `comparing the spec with the plan of ${nameOf(run)}: ${differences.join("; ")}`;
    const hint = isElsewhere ? elsewhereHint(job, sink, run) : hintOf(job, sink, run);
    throw new JobError("PLAN_CHANGED", found, { hint });
  }
}

/** Refuses a run of another job with the same name, whose rows are elsewhere. @throws JobError PLAN_CHANGED */
export function refuseElsewhere(job: Job, sink: Sink, run: PlannedRun): void {
  if (compareTargets(run.plan.target, sink.planTarget).isElsewhere) {
    checkSameSpec(job, sink, run);
  }
}

/** Refuses a pruned run, except with `--new-run`. @throws JobError PRUNED */
export function refusePruned(job: Job, attempt: Attempt, pruned: Pruning): void {
  if (!attempt.newRun) {
    throw prunedError(pruned, newRunCommand(job, pruned.plan));
  }
}

/** Opens a run that `refuseElsewhere` admits. @throws JobError PRUNED; also those of `Sink.open` */
export async function openOwn(job: Job, sink: Sink, stored: StoredPlan, how?: Opening): Promise<RunSink> {
  if (stored.pruned !== undefined) {
    throw prunedError(stored.pruned, newRunCommand(job, stored.plan));
  }
  const run = await sink.open(stored, how);
  refuseElsewhere(job, sink, run);
  return run;
}

/** Finds the latest run of the job's params. @param act what it is for: "discarding" @throws JobError USAGE if there is none */
export async function findPlanned({ spec, base, command }: Job, sink: Sink, act: string): Promise<StoredPlan> {
  const stored = await sink.find(base);
  if (stored === undefined) {
    throw new JobError("USAGE", `${act} run ${base}: it is not planned`, {
      hint: `${command(spec.params)} scores it; another run of the job has other params`,
    });
  }
  return stored;
}

/** The hint for a run of another table: the other job keeps the name, or it would score and add its rows again. */
function elsewhereHint(job: Job, sink: Sink, run: PlannedRun): string {
  const { runId, job: name, target } = run.plan;
  const table = String(target["table"]);
  const shared = `if another job is called ${name}, too, give this job another name: the other one has run ${runId} for ${table}`;
  if (run.state.kind === "published") {
    return hintOf(job, sink, run, [shared]);
  }
  const again = newRunCommand(job, run.plan);
  return run.state.kind === "discarded"
    ? `${shared}; else score again, into ${sink.target}: ${again}`
    : `${shared}\n    else name ${table} again and run again\n    or, if ${table} is gone, abandon this run, and start over: ${again}`;
}

/**
 * Whether a changed spec, model or input may begin a new run as if `--new-run` were given: an attempt has ended with an
 * error that such a change cures, nothing is committed, and no other attempt may be working on the run. Not where
 * answers were paid for, which the old run keeps, nor where the target differs: another job may have the same name.
 */
export async function hasOnlyFailed(
  spec: JobSpec,
  sink: Sink,
  attempt: Attempt,
  { plan, spans }: RunSink,
): Promise<boolean> {
  const codes: Readonly<Record<string, number>> = exitCodes;
  return (
    attempt.worker.count === 1 &&
    spans.size === 0 &&
    spec.model.prompt === undefined &&
    plan.request.prompt === undefined &&
    compareTargets(plan.target, sink.planTarget).lines.length === 0 &&
    [64, 65].includes(codes[(await lastFailure(sink, plan.runId))?.code ?? ""] ?? 0) && // a person has to correct what ended it
    !(await isWorkedOn(sink, attempt, plan.runId))
  );
}

function nameOf({ state }: PlannedRun): string {
  return `this ${state.kind === "published" ? "finished" : state.kind === "discarded" ? "discarded" : "unfinished"} run`;
}

/**
 * Checks that model, tokenizers and input are still those of the plan. Returns how many files were added since.
 * @throws JobError INPUT_CHANGED or MODEL_CHANGED (66), saying exactly what changed
 */
export function checkPins(
  job: Job,
  sink: Sink,
  log: Log,
  run: RunSink,
  now: FoundDigests & { readonly listed: readonly ListedShard[] },
): number {
  const { spec } = job;
  const { plan } = run;
  const changedModel = (what: string, difference: string): JobError =>
    new JobError("MODEL_CHANGED", `comparing ${what} with the plan of ${nameOf(run)}: ${difference}`, {
      hint: hintOf(job, sink, run),
    });
  if (now.modelSha256 !== undefined && now.modelSha256 !== plan.model.sha256) {
    throw changedModel(
      modelUri(spec.model),
      spec.model.server === undefined
        ? `its sha256 is ${now.modelSha256}, planned ${plan.model.sha256}`
        : "its inputs, outputs or requests are not those planned",
    );
  }
  const tokenizer = tokenizerDifference(plan.model, now.tokenizers);
  if (tokenizer !== undefined) {
    const [uri, difference] = tokenizer;
    throw changedModel(`tokenizer ${uri}`, difference);
  }

  const change = compareListing(plan, now.listed);
  const broken = run.state.kind === "published" ? { ...change, missing: [] } : { ...pendingOf(run, change), added: [] };
  if (broken.added.length + broken.missing.length + broken.changed.length > 0) {
    throw changedInput(job, sink, run, { broken, listed: now.listed });
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

function changedInput(
  job: Job,
  sink: Sink,
  run: RunSink,
  { broken, listed }: { readonly broken: ListingChange; readonly listed: readonly ListedShard[] },
): JobError {
  const byUri = new Map(listed.map((shard) => [shard.uri, shard]));
  const changed = broken.changed.flatMap((shard) => {
    const now = byUri.get(shard.uri);
    return now === undefined ? [] : [{ shard, now }];
  });
  const [first] = changed;
  const differs = describe(broken, first && pinDifference(first.shard, first.now));
  const restore = first === undefined ? restoreAll : restoreHint(first.shard);
  const touch = changed.map(({ shard, now }) => touchHint(shard, now, job.pathOf(shard.uri)));
  const isOnlyTouched = broken.added.length + broken.missing.length === 0 && !touch.includes(undefined);
  const commands = isOnlyTouched ? touch.filter((line) => line !== undefined) : [];
  const more = commands.length > shownLimit ? [`and so on, ${commands.length - shownLimit} more files`] : [];
  return new JobError("INPUT_CHANGED", `comparing the input with the plan of ${nameOf(run)}: ${differs}`, {
    hint: hintOf(job, sink, run, [
      ...(run.state.kind === "published" ? [] : [restore]),
      ...commands.slice(0, shownLimit),
      ...more,
    ]),
  });
}

const restoreAll = "restore what was planned and run again";

/** @param restore how to undo the difference */
function hintOf(
  job: Job,
  sink: Sink,
  { plan, state }: PlannedRun,
  restore: readonly string[] = state.kind === "published" ? [] : [restoreAll],
): string {
  const asItIs = "with the current input, model and spec";
  const adds = replacedBy(sink.planTarget) === "nothing";
  const lines =
    state.kind === "published"
      ? [
          "the finished predictions are untouched",
          ...restore,
          `to score again ${asItIs}, which ${adds ? "adds to them" : "then replaces them"}`,
        ]
      : [...restore, `to abandon this run, and score ${asItIs}`];
  return `${lines.join("\n    ")}: ${newRunCommand(job, plan)}${adds ? " --allow-duplicates" : ""}`;
}

function pendingOf(run: RunSink, { missing, changed }: ListingChange): Pick<ListingChange, "missing" | "changed"> {
  const asked = new Set<PlannedShard>([...missing, ...changed]);
  const pending = new Set<PlannedShard>();
  const { plan } = run;
  let start = 0;
  for (const shard of plan.input.shards) {
    const end = start + shard.rows;
    const spans = { from: Math.floor(start / plan.commitRows), to: Math.ceil(end / plan.commitRows) };
    if (asked.has(shard) && shard.rows > 0 && pendingRows(run, spans) > 0) {
      pending.add(shard);
    }
    start = end;
  }
  return {
    missing: missing.filter((shard) => pending.has(shard)),
    changed: changed.filter((shard) => pending.has(shard)),
  };
}

/** @param difference how the first changed shard differs */
function describe({ added, missing, changed }: ListingChange, difference?: string): string {
  const uris = changed.map(({ uri }, index) =>
    index === 0 && difference !== undefined ? `${uri} (${difference})` : uri,
  );
  const parts = [
    ["missing", missing.map(({ uri }) => uri)],
    ["changed since it was planned:", uris],
    ["added", added],
  ] as const;
  return parts
    .filter(([, names]) => names.length > 0)
    .map(([what, names]) => {
      const more = names.length > shownLimit ? ` and ${names.length - shownLimit} more` : "";
      return `${what} ${names.slice(0, shownLimit).join(", ")}${more}`;
    })
    .join("; ");
}
