import { groupRuns, overParams, planOf, type RunGroup } from "../../jobs/prune-choice.js";
import { runIdOf, splitRunId } from "../../plan/identity.js";
import type { Plan, RunId } from "../../plan/plan.js";
import { everyRun } from "../../publish/recorded-run.js";
import { type ErasedRows, nothingErased, type TableErasure } from "../../publish/erasure.js";
import type { JobContext } from "../../scoring/context.js";
import { decisionDocument, stripVerdicts } from "../../sink/ledger.js";
import type { Sink, StoredPlan } from "../../sink/port.js";
import { JobError } from "../../util/errors.js";
import { openSecondJob } from "../second-job.js";
import { type CopyRequest, eraseRun, type Source } from "./copy-run.js";
import { findSource } from "./find-source.js";
import { warnOfUnsearched } from "./unsearched.js";

/** What became of the runs of some params, or of a table. */
export interface ErasedRun extends ErasedRows {
  /** The latest run; undefined: it is about a table. */
  readonly runId: RunId | undefined;
  readonly params: Readonly<Record<string, string>>;
  readonly place: string;
  /** Why nothing was erased though rows may be there; undefined: all rows of the keys are gone. */
  readonly retained: string | undefined;
}

export interface EraseRequest extends CopyRequest {
  /** Takes the indexes of keys that are found. */
  readonly found: Set<number>;
  /**
   * Returns the params to give, so that the spec names `table` (`schema.table`), which a run with `params` wrote.
   * undefined: with these params the spec names another table.
   */
  readonly paramsOfTable: (table: string, params: Plan["params"]) => Plan["params"] | undefined;
  /** Opens the job with other params, whose target is another folder. */
  readonly openJob: (params: Readonly<Record<string, string>>) => Promise<JobContext & AsyncDisposable>;
}

/**
 * Erases the rows of some keys from the output of all runs of a job, and from the predictions of its
 * second model. Safe to repeat after a kill at any step.
 */
export async function eraseRows(context: JobContext, request: EraseRequest): Promise<readonly ErasedRun[]> {
  const others = { jobs: new Set<string>(), tables: new Map<string, Plan["params"]>() };
  const everything = { job: context.spec.name, last: everyRun, complete: true, others } as const;
  const groups = groupRuns(await context.sink.history(everything));
  const { paramsOfTable } = request;
  const { length: runsFound } = groups;
  warnOfUnsearched(context, { runsFound, others, paramsOfTable });
  const published = (await eraseFromTables(context, request)) ?? (await eraseFromFiles(context, groups, request));
  await using second = await openSecondJob(context);
  if (second.sink.table === undefined) {
    return [...published, ...(await eraseSeconds(groups, request))];
  }
  const isThere = (await second.sink.history({ job: second.spec.name, last: 1 })).length > 0;
  const predictions = isThere ? await eraseFromTables(second, request, overParams(groups)) : undefined;
  return [...published, ...(predictions ?? [])];
}

/** Erases rows from tables; undefined: the rows are in files. */
async function eraseFromTables(
  { spec, sink, actingUser, command }: Pick<JobContext, "spec" | "sink" | "actingUser" | "command">,
  { keys, dryRun, found }: EraseRequest,
  isOver?: TableErasure["isOver"],
): Promise<readonly ErasedRun[] | undefined> {
  const tables = await sink.table?.erase({
    keys,
    dryRun,
    found,
    by: actingUser(),
    job: spec.name,
    isOver,
    command,
  });
  return tables?.map(({ name, rows, rejects }) => ({
    runId: undefined,
    params: {},
    place: name,
    rows,
    rejects,
    retained: undefined,
  }));
}

/**
 * Erases rows from the files of all runs. A run that has such rows is replaced by a run of its other rows, as a new run
 * replaces it: readers see the one or the other.
 */
async function eraseFromFiles(
  context: JobContext,
  groups: readonly RunGroup[],
  request: EraseRequest,
): Promise<readonly ErasedRun[]> {
  const erased: ErasedRun[] = [];
  for (const group of groups) {
    context.signal.throwIfAborted();
    const { runId, place } = group.latest;
    const params = planOf(group)?.params ?? {};
    const outcome = await orRetained(() => eraseGroup(group, request));
    erased.push({ runId, place, params, ...outcome });
  }
  return erased;
}

/** Erases rows from the files of the runs that score the same rows with a second model. */
async function eraseSeconds(groups: readonly RunGroup[], request: EraseRequest): Promise<readonly ErasedRun[]> {
  const erased: ErasedRun[] = [];
  for (const group of groups) {
    const plan = planOf(group);
    if (plan === undefined) {
      continue;
    }
    await using context = await request.openJob(plan.params);
    await using job = await openSecondJob(context);
    const runId = runIdOf(job.spec.name, plan.params, job.sha256);
    const outcome = await orRetained(async () => {
      const latest = await job.sink.find(runId);
      if (latest === undefined) {
        return undefined;
      }
      const isAbandoned = group.latest.status === "published" && (await isIncomplete(job.sink, latest));
      return isAbandoned
        ? retained(`they are not complete, and no run completes them: remove the folder ${job.sink.target}`)
        : await eraseLatest(job, latest, request);
    });
    if (outcome !== undefined) {
      erased.push({ runId, params: plan.params, place: job.sink.target, ...outcome });
    }
  }
  return erased;
}

/** Whether predictions of a second model that a run should have kept are missing; an erasure completes itself. */
async function isIncomplete(sink: Sink, latest: StoredPlan): Promise<boolean> {
  const { plan, pruned } = latest;
  return pruned === undefined && plan.erasure === undefined && (await sink.open(latest)).state.kind === "unfinished";
}

type GroupOutcome = ErasedRows & { readonly retained: string | undefined };

const retained = (why: string): GroupOutcome => ({ ...nothingErased, retained: why });

/** What keeps the rows of one folder does not keep those of others from being erased. */
async function orRetained<T>(work: () => Promise<T>): Promise<T | GroupOutcome> {
  try {
    return await work();
  } catch (error) {
    const isOwn =
      error instanceof JobError &&
      ["OUTPUT_FOREIGN", "OUTPUT_DAMAGED", "PLAN_CHANGED", "DISCARDED", "SPEC_INVALID"].includes(error.code);
    if (isOwn) {
      return retained(error.hint === undefined ? error.message : `${error.message}: ${error.hint}`);
    }
    throw error;
  }
}

async function eraseGroup(group: RunGroup, request: EraseRequest): Promise<GroupOutcome> {
  const plan = planOf(group);
  if (plan === undefined) {
    return retained("its plan is damaged");
  }
  await using context = await request.openJob(plan.params);
  const latest = await context.sink.find(splitRunId(plan.runId).base);
  if (latest === undefined) {
    return retained("the spec names another folder for these params");
  }
  return await eraseLatest(context, latest, request);
}

/** Erases rows of the runs of some params. @param latest the plan of the last one */
async function eraseLatest(context: JobContext, latest: StoredPlan, request: EraseRequest): Promise<GroupOutcome> {
  const { sink } = context;
  if (latest.pruned !== undefined) {
    await (request.dryRun ? undefined : stripVerdicts(sink.ledger, latest.pruned.tombstone));
    return { ...nothingErased, retained: undefined };
  }
  const source = await findSource(context, latest, request.dryRun);
  if (typeof source === "string") {
    return retained(source);
  }
  return source === undefined
    ? { ...nothingErased, retained: undefined }
    : {
        ...(await unlessReplaced(context, { latest, source }, () => eraseRun(context, source, request))),
        retained: undefined,
      };
}

/**
 * Runs `work` on the rows of `source`. @throws JobError PLAN_CHANGED if another run took its place, whose files are gone then:
 * one that was planned meanwhile, or the unfinished erasure that was the latest run, and that another process publishes
 */
async function unlessReplaced<T>(
  { sink, signal, writer }: JobContext,
  { latest, source }: { readonly latest: StoredPlan; readonly source: Source },
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    signal.throwIfAborted();
    const { runId } = latest.plan;
    const now = await sink.find(splitRunId(runId).base);
    if (now === undefined || now.plan.erasure?.writer === writer) {
      throw error; // the run that this attempt has planned
    }
    const isLatest = now.plan.runId === runId;
    // Its decision comes before the first file of the source is replaced.
    const decision = await sink.ledger.read(runId, decisionDocument);
    const isReplacing = source.stored.plan.runId !== runId && isLatest && decision?.kind === "approved";
    if (isLatest && !isReplacing) {
      throw error;
    }
    const found = isReplacing
      ? `run ${runId}, of another erasure, has replaced it`
      : `run ${now.plan.runId} was planned meanwhile`;
    throw new JobError("PLAN_CHANGED", `erasing rows of run ${source.stored.plan.runId}: ${found}`, {
      hint: "run the same command again",
      cause: error,
    });
  }
}
