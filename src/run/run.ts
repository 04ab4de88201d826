import type { Decoder } from "../formats/port.js";
import type { Engine, ModelFile } from "../engine/port.js";
import { type Damage, JobError, messageOf } from "../util/errors.js";
import { numberedRunId, runIdOf, splitRunId } from "../plan/identity.js";
import { withShards } from "../plan/compare.js";
import type { Plan, RunId } from "../plan/plan.js";
import { spanCount } from "../plan/spans.js";
import { count, type RunReport } from "../report/report.js";
import type { RunSink, StoredPlan } from "../sink/port.js";
import type { Listing } from "../storage/port.js";
import { carryOut, carryOutIdle, countCommitted, isIdle, runFacts } from "./carry-out.js";
import { listInput, warnOfUnmatched } from "./input.js";
import { type InputWait, inputWait } from "./input-wait.js";
import { atKey, type JobContext, type ScoringContext } from "../scoring/context.js";
import { loadEngine } from "./loading.js";
import { planRun } from "./planning.js";
import { checkPins } from "./resume.js";
import { unfinishedRuns } from "./state.js";

/**
 * Carries a run to its end: plans it or takes up its plan, scores what is not committed, finishes.
 * The same call again finds it complete.
 * @throws JobError
 */
export async function runJob(context: JobContext): Promise<RunReport> {
  const input = inputWait(context);
  for (;;) {
    try {
      return await runOnce(context, input);
    } catch (error) {
      if (!input.refuses(error)) {
        throw error;
      }
    }
  }
}

async function runOnce(context: JobContext, input: InputWait): Promise<RunReport> {
  const { spec, sink, log } = context;
  const base = runIdOf(spec.name, spec.params, context.sha256);
  const at = { runId: base };
  try {
    return await takeUpOrStart(context, at, input);
  } catch (error) {
    const damage = damageOf(context, error);
    if (damage === undefined) {
      throw error;
    }
    const runId = (damage.runId ?? at.runId) as RunId;
    await sink.admitNewRun(runAfter(runId));
    log.warn(`giving up run ${runId}: ${messageOf(error)}`);
    return await startRun(context, runAfter(runId), input);
  }
}

/** What `--new-run` gets past; not where this attempt has committed spans, whose numbers would mix with the new run's. */
function damageOf({ newRun, record }: JobContext, error: unknown): Damage | undefined {
  return newRun && error instanceof JobError && record.counts.spansCommitted === 0 ? error.damage : undefined;
}

/** `at`: the latest run of the job and its params; then the one that is worked on. */
async function takeUpOrStart(context: JobContext, at: { runId: RunId }, input: InputWait): Promise<RunReport> {
  const { sink, log } = context;
  const stored = await sink.find(at.runId);
  if (stored === undefined) {
    return await startRun(context, at.runId, input);
  }
  at.runId = stored.plan.runId;
  const run = await sink.open(stored);
  if (context.newRun && run.finished) {
    await sink.admitNewRun(runAfter(at.runId));
    log.info(`opening a run after ${at.runId}, which is complete`);
    at.runId = runAfter(at.runId);
    return await startRun(context, at.runId, input);
  }
  return await takeUp(context, at, { stored, run, input });
}

function runAfter(runId: RunId): RunId {
  const { base, number } = splitRunId(runId);
  return numberedRunId(base, number + 1);
}

async function startRun(context: JobContext, runId: RunId, input: InputWait): Promise<RunReport> {
  for (const { text } of input.hasRefused ? [] : await unfinishedRuns(context)) {
    context.log.warn(text);
  }
  const listing = await input.listing();
  warnOfUnmatched(context, listing);
  const model = await openPinnedModel(context);
  return await withTools(context, { listing, model }, async (tools) => {
    const created = await createRun(context, { runId, listing, model, ...tools });
    // Another attempt may have written its plan first, and that one stands.
    const pins = { listed: listing.shards, modelSha256: model.sha256 };
    const shardsUnplanned = checkPins(context, created.stored.plan, created.run, pins);
    if (created.run.finished) {
      return await alreadyComplete(context, created); // by that other attempt
    }
    return await carryOut(context, { ...created, ...tools, engine: await tools.engine, shardsUnplanned });
  });
}

async function takeUp(
  context: JobContext,
  at: { runId: RunId },
  { stored, run, input }: { stored: StoredPlan; run: RunSink; input: InputWait },
): Promise<RunReport> {
  const { log } = context;
  const { plan } = stored;
  const listing = await listInput(context);
  if (run.finished) {
    checkPins(context, plan, run, { listed: listing.shards, modelSha256: await digestIfThere(context) });
    return await alreadyComplete(context, { stored, run });
  }
  const idle = isIdle(context, { stored, run });
  // Where nothing is left to be scored the model may be gone, as it may when the run is finished.
  const model = idle ? undefined : await openPinnedModel(context);
  const modelSha256 = model === undefined ? await digestIfThere(context) : model.sha256;
  let shardsUnplanned: number;
  try {
    // Before the model is loaded: what has changed should be said at once.
    shardsUnplanned = checkPins(context, plan, run, { listed: listing.shards, modelSha256 });
  } catch (error) {
    if (context.newRun && error instanceof JobError && error.exitCode === 66) {
      await context.sink.admitNewRun(runAfter(plan.runId));
      log.warn(`giving up run ${plan.runId}: ${error.message}`);
      at.runId = runAfter(plan.runId);
      return await startRun(context, at.runId, input);
    }
    throw error;
  }
  log.info(`taking up run ${plan.runId}: ${countCommitted(run)} of ${count(spanCount(plan), "span")} committed`);
  if (model === undefined) {
    return await carryOutIdle(context, { stored, run, shardsUnplanned });
  }
  return await withTools(context, { listing, model }, async ({ decoder, engine }) =>
    carryOut(context, { stored, run, decoder, engine: await engine, shardsUnplanned, digests: new Map() }),
  );
}

/** Opens decoder and engine for `work`, and closes them: the one while the other is being opened. */
async function withTools<T>(
  context: JobContext,
  { listing, model }: { listing: Listing; model: ModelFile },
  work: (tools: { decoder: Decoder; engine: Promise<Engine> }) => Promise<T>,
): Promise<T> {
  const inputBytes = listing.shards.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  await using loading = loadEngine(context, model, { inputBytes });
  context.sink.expect(); // while threads load the model
  await using decoder = await context.openDecoder(listing.folders);
  return await work({ decoder, engine: loading.engine });
}

async function createRun(
  context: JobContext,
  tools: { runId: RunId; listing: Listing; decoder: Decoder; engine: Promise<Engine>; model: ModelFile },
): Promise<{ stored: StoredPlan; run: RunSink; digests: ReadonlyMap<string, string> }> {
  const { sink, log } = context;
  const plan = await planRun(context, { ...tools, listed: tools.listing.shards });
  const planned = await sink.create(plan);
  const stored = { ...planned, plan: withShards(planned.plan, plan.input.shards) };
  const { input, commitRows } = plan;
  const shards = count(input.shards.length, "shard");
  const spans = count(spanCount(plan), "span");
  log.info(
    `planned run ${plan.runId}: ${count(input.rows, "row")} of ${shards}, in ${spans} of up to ${count(commitRows, "row")}`,
  );
  return { stored, run: await sink.open(stored), digests: digestsIn(plan) };
}

function digestsIn({ input }: Plan): ReadonlyMap<string, string> {
  return new Map(input.shards.flatMap(({ uri, sha256 }) => (sha256 === undefined ? [] : [[uri, sha256]])));
}

async function digestIfThere(context: JobContext): Promise<string | undefined> {
  try {
    return (await openPinnedModel(context)).sha256;
  } catch (error) {
    if (error instanceof JobError && error.code === "FILE_MISSING") {
      return undefined; // what is scored does not need its model any more
    }
    throw error;
  }
}

/** @throws JobError MODEL_PIN when the spec pins another digest */
export async function openPinnedModel(context: ScoringContext): Promise<ModelFile> {
  return await atKey(context, ["model", "path"], async () => {
    const model = await context.openModel();
    const pinned = context.spec.model.sha256;
    if (pinned !== undefined && pinned !== model.sha256) {
      throw new JobError(
        "MODEL_PIN",
        `loading model ${model.name}: its sha256 is ${model.sha256}, model.sha256 asks for ${pinned}`,
        { hint: "deploy the model that is pinned, or change the pin" },
      );
    }
    return model;
  });
}

async function alreadyComplete(
  { sink, record }: JobContext,
  { stored, run }: { stored: StoredPlan; run: RunSink },
): Promise<RunReport> {
  const { plan } = stored;
  record.takesUp(runFacts(stored));
  await run.tidy();
  return {
    runId: plan.runId,
    status: "already_complete",
    rowsPlanned: plan.input.rows,
    rowsScored: 0,
    rowsRejected: 0,
    rowsFiltered: 0,
    rowsDeduplicated: 0,
    spansPlanned: spanCount(plan),
    spansCommitted: spanCount(plan),
    spansResumed: spanCount(plan),
    shardsUnplanned: 0,
    inputWaitSeconds: record.inputWaitSeconds,
    seconds: 0,
    batchSize: null,
    engineBusy: null,
    stageSeconds: null,
    unitsReadAgain: {},
    provider: null,
    providersMissing: [],
    output: sink.target,
  };
}
