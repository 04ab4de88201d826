import { type Damage, firstError, JobError, messageOf, orError } from "../base/errors.js";
import type { Attempt, ChainPosition, Input, OpenedJob } from "../flow/opened-job.js";
import type { AttemptRecord } from "../report/attempt-record.js";
import type { RunReport } from "../report/report.js";
import type { RunSink, StoredPlan } from "../targets/target.js";
import { alreadyComplete, nothingNew, recordingFailure, recordLateness, runFacts, tellInput } from "./attempt.js";
import { spellOut, unfinishedLines, unfinishedRuns } from "./hints.js";
import { listInput, listPublished, withInput } from "./input.js";
import { runStep } from "./lifecycle/lifecycle.js";
import { nextRunId, splitRunId } from "./plan/identity.js";
import type { Changes, Plan, RunId } from "./plan/plan.js";
import { checkPublished, latestRun, refuseElsewhere, refusePruned } from "./resume.js";

/**
 * Carries out a run: plans it or resumes it, scores the spans that are not committed, and finishes it. The same call
 * again finds the run complete.
 */
export async function runJob(opened: OpenedJob): Promise<RunReport> {
  const { job, sink, attempt, reporter } = opened;
  try {
    const stored = await sink.find(job.base);
    if (stored?.pruned !== undefined) {
      refusePruned(job, attempt, stored.pruned);
      reporter.log.info(`planning a new run after ${stored.plan.runId}, which was pruned`);
      return await startRun(opened, nextRunId(stored.pruned.tombstone));
    }
    if (stored === undefined) {
      return await startRun(opened, job.base);
    }
    await requireRange(opened, stored);
    return await takeUp(opened, stored);
  } catch (thrown) {
    const error = firstError(thrown);
    const damage = damageOf(attempt, reporter.record, error);
    if (damage === undefined) {
      throw spellOut(job, error);
    }
    return await abandon(opened, damage.runId as RunId, error);
  }
}

/**
 * The damage that `--new-run` replaces; undefined if this attempt has committed spans, whose counts the report would
 * mix with the new run's.
 */
function damageOf({ newRun }: Attempt, record: AttemptRecord, error: unknown): Damage | undefined {
  return newRun && error instanceof JobError && record.counts.spansCommitted === 0 ? error.damage : undefined;
}

export async function abandon(opened: OpenedJob, runId: RunId, why: unknown): Promise<RunReport> {
  const { reporter } = opened;
  reporter.record.setReview(undefined); // the next run has none yet
  reporter.log.warn(`planning a new run in place of ${runId}: ${messageOf(why)}`);
  return await startRun(opened, nextRunId(runId));
}

/** Starts the run after a run. @param state what became of that one: "was discarded" @param held that run, whose place it takes */
export function startAfter(
  opened: OpenedJob,
  { plan: { runId } }: RunSink,
  state: string,
  held?: RunSink,
): Promise<RunReport> {
  const { reporter } = opened;
  reporter.log.info(`planning a new run after ${runId}, which ${state}`);
  return startRun(opened, nextRunId(runId), held);
}

/**
 * @param held the held run, or the unfinished erasure, that it takes the place of. If a person has approved it
 * meanwhile, no run takes its place, and this attempt publishes it.
 */
async function startRun(asked: OpenedJob, runId: RunId, held?: RunSink): Promise<RunReport> {
  const opened = { ...asked, input: await readableInput(asked) };
  const { job, sink, input, models, attempt, reporter } = opened;
  const { log } = reporter;
  if (input.chain === undefined) {
    models.prepare();
  }
  recordLateness(sink, attempt, reporter, runId);
  const others = await unfinishedRuns(job, sink);
  const notBegun = others.filter((other) => attempt.runsOfCommand?.has(splitRunId(other.runId).base) !== true);
  for (const line of unfinishedLines(job, notBegun)) {
    log.warn(line);
  }

  const begun = await withInput(opened, async (listing) => {
    if (input.chain?.to === null && listing.shards.length === 0) {
      await tellInput(opened, listing.table); // the last run was approved, or killed before it did
      try {
        await (listing.changes && input.chain.pass(listing.changes.to));
      } catch (error) {
        log.warn(`storing that no rows came: ${messageOf(error)}`); // the next look begins where this one did
      }
      return { report: nothingNew(job, sink, reporter) };
    }
    models.prepare();
    const { planAndScore } = await import("./score-run.js"); // which loads much that the ends above do not need
    return await planAndScore(opened, runId, listing, held);
  });
  if (begun === "approved") {
    return await takeUp(opened, held as StoredPlan);
  }
  if ("report" in begun) {
    return begun.report;
  }
  const { chain } = input;
  if (chain?.to !== null) {
    throw new Error("the input lists another range than it was asked for"); // or it would be planned for ever
  }
  log.info("another attempt has planned which rows this run reads: planning those");
  return await startRun({ ...opened, input: { ...input, chain: { ...chain, ...begun.range } } }, runId, held);
}

/** The input of a new run: that of a chain is all rows if its range cannot be read any more. */
async function readableInput({ job, sink, input, attempt, reporter }: OpenedJob): Promise<Input> {
  const { chain } = input;
  if (!attempt.newRun || chain === undefined || chain.to === null) {
    return input;
  }
  const gone = await orError(
    () => listInput(job, input),
    ({ code }) => code === "INPUT_REWRITTEN" || code === "FILE_MISSING",
  );
  if (!(gone instanceof JobError)) {
    return input;
  }
  const whole = chain.whole(sink);
  reporter.log.warn(`planning a run of all rows: ${gone.message}`);
  return { ...input, chain: whole };
}

/** Stores what a run of a chain reads, unless that is known. Returns what is stored, if these are other rows. */
export async function claimRange(
  chain: ChainPosition | undefined,
  { dateMs, writer }: Attempt,
  { input: { changes } }: Plan,
): Promise<Pick<Changes, "from" | "to"> | undefined> {
  if (chain === undefined || changes === undefined) {
    return undefined;
  }
  const by = { at: new Date(dateMs()).toISOString(), writer };
  const { from, to } = chain.to === null ? await chain.claim(changes.to, by) : { from: chain.from, to: chain.to };
  return from === changes.from && to === changes.to ? undefined : { from, to };
}

/**
 * Refuses a plan of other rows than the chain has for its run; a note of the chain that is gone is stored again.
 * @throws JobError OUTPUT_DAMAGED
 */
async function requireRange({ input: { chain }, attempt }: OpenedJob, { plan }: StoredPlan): Promise<void> {
  const { changes } = plan.input;
  if (changes?.from === null && chain !== undefined && chain.to !== null) {
    return; // of all rows, in place of a range that could not be read
  }
  const isOther = chain !== undefined && changes !== undefined && chain.from !== changes.from;
  if (isOther || (await claimRange(chain, attempt, plan)) !== undefined) {
    throw new JobError(
      "OUTPUT_DAMAGED",
      `reading run ${plan.runId}: its plan reads other rows than the notes of the chain say`,
      {
        hint: "notes of the chain were removed from its output: restore them, or name another output and another job",
      },
    );
  }
}

async function takeUp(opened: OpenedJob, stored: StoredPlan): Promise<RunReport> {
  const { job, sink, input, models, attempt, reporter } = opened;
  reporter.record.setRun(runFacts(stored));
  const run = await sink.open(stored);
  recordLateness(sink, attempt, reporter, run.plan.runId);
  return await recordingFailure(sink, attempt, run, async () => {
    if (!attempt.newRun) {
      refuseElsewhere(job, sink, run);
    }
    const step = runStep(latestRun(run), attempt.newRun);
    if (step.kind !== "score" && step.kind !== "compare with plan") {
      return await (await import("./score-run.js")).takeStep(opened, run, step);
    }
    if (step.kind === "score") {
      models.prepare();
      const { resumeScoring } = await import("./score-run.js");
      const scoring = resumeScoring(opened, run);
      const report = await (attempt.newRun ? orChangedInput(scoring) : scoring);
      return report instanceof JobError ? await abandon(opened, run.plan.runId, report) : report;
    }
    const report = await alreadyComplete(job, sink, reporter, run); // first: it needs no input, which may be gone
    await checkPublished(opened, run, await listPublished(job, input, run.plan));
    return report;
  });
}

/** Returns the error if rows cannot be read as they were planned. */
async function orChangedInput<T>(scoring: Promise<T>): Promise<T | JobError> {
  return await scoring.catch((thrown: unknown) => {
    const error = firstError(thrown);
    if (error instanceof JobError && error.code === "INPUT_CHANGED") {
      return error;
    }
    throw thrown;
  });
}
