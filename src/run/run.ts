import type { Contract } from "../batch/contract.js";
import { blankInputs } from "../batch/packer.js";
import type { Decoder } from "../decode/port.js";
import type { Engine, ModelFile } from "../engine/port.js";
import { JobError } from "../errors.js";
import { runIdOf } from "../plan/identity.js";
import type { Plan, RunId } from "../plan/plan.js";
import { spanCount } from "../plan/spans.js";
import { count, type RunReport } from "../report/report.js";
import type { RunSink, StoredPlan } from "../sink/port.js";
import type { Listing } from "../source/port.js";
import { atKey, type JobContext } from "./job.js";
import { awaitInput, listInput, planRun, requireListed } from "./planning.js";
import { checkPins } from "./resume.js";
import { scoreSpans } from "./score.js";
import { verifyingSource } from "./verify.js";

/** Rows of a batch where neither spec nor model says: large enough for small models, small enough for the cache. */
const defaultBatchRows = 4096;

/**
 * Carries a run to its end: plans it or takes up its plan, scores what is not committed, finishes.
 * The same call again finds it complete.
 * @throws JobError
 */
export async function runJob(context: JobContext): Promise<RunReport> {
  const { spec, sink, log } = context;
  const runId = runIdOf(spec.name, spec.params, context.sha256);
  const stored = await sink.find(runId);
  if (stored === undefined) {
    await awaitInput(context);
  }
  const listing = await listInput(context);
  const known = stored === undefined ? undefined : { stored, run: await sink.open(stored) };
  if (known?.run.finished === true) {
    const modelSha256 = await digestIfThere(context);
    checkPins(context, known.stored.plan, known.run, { listed: listing.shards, modelSha256 });
    return alreadyComplete(context, known.stored.plan);
  }
  const model = await openPinnedModel(context);
  const pins = { listed: listing.shards, modelSha256: model.sha256 };
  if (known === undefined) {
    return await withTools(context, { listing, model }, async (tools) => {
      const created = await createRun(context, { runId, listing, model, ...tools });
      // Another attempt may have written its plan first, and that one stands.
      const shardsUnplanned = checkPins(context, created.stored.plan, created.run, pins);
      return await carryOut(context, { ...created, ...tools, shardsUnplanned });
    });
  }
  const { run } = known;
  const { plan } = known.stored;
  log.info(`taking up run ${runId}: ${countCommitted(run)} of ${count(spanCount(plan), "span")} committed`);
  // Before the model is loaded: what has changed should be said at once.
  const shardsUnplanned = checkPins(context, plan, run, pins);
  return await withTools(context, { listing, model }, (tools) =>
    carryOut(context, { ...known, ...tools, shardsUnplanned, fresh: undefined }),
  );
}

/** Opens decoder and engine for `work`, and closes them. */
async function withTools<T>(
  context: JobContext,
  { listing, model }: { listing: Listing; model: ModelFile },
  work: (tools: { decoder: Decoder; engine: Engine }) => Promise<T>,
): Promise<T> {
  await using decoder = await context.openDecoder(listing.folders);
  await using engine = await context.openEngine(model);
  return await work({ decoder, engine });
}

async function createRun(
  context: JobContext,
  tools: { runId: RunId; listing: Listing; decoder: Decoder; engine: Engine; model: ModelFile },
): Promise<{ stored: StoredPlan; run: RunSink; fresh: Plan }> {
  const { sink, log } = context;
  requireListed(context, tools.listing);
  const plan = await planRun(context, { ...tools, listed: tools.listing.shards });
  const stored = await sink.create(plan);
  const { input, commitRows } = plan;
  const shards = count(input.shards.length, "shard");
  const spans = count(spanCount(plan), "span");
  log.info(
    `planned run ${plan.runId}: ${count(input.rows, "row")} of ${shards}, in ${spans} of up to ${count(commitRows, "row")}`,
  );
  return { stored, run: await sink.open(stored), fresh: plan };
}

async function digestIfThere(context: JobContext): Promise<string | undefined> {
  try {
    return (await openPinnedModel(context)).sha256;
  } catch (error) {
    if (error instanceof JobError && error.code === "FILE_MISSING") {
      return undefined; // a finished run does not need its model any more
    }
    throw error;
  }
}

/** @throws JobError MODEL_PIN when the spec pins another digest */
export async function openPinnedModel(context: JobContext): Promise<ModelFile> {
  return await atKey(context, ["model", "path"], async () => {
    const model = await context.openModel();
    const pinned = context.spec.model.sha256;
    if (pinned !== undefined && pinned !== model.sha256) {
      throw new JobError(
        "MODEL_PIN",
        `loading model ${model.path}: its sha256 is ${model.sha256}, model.sha256 asks for ${pinned}`,
        { hint: "deploy the model that is pinned, or change the pin" },
      );
    }
    return model;
  });
}

interface Standing {
  readonly stored: StoredPlan;
  readonly run: RunSink;
  readonly decoder: Decoder;
  readonly engine: Engine;
  readonly shardsUnplanned: number;
  /** The plan that this attempt made, whether or not it is the one that stands. */
  readonly fresh: Plan | undefined;
}

async function carryOut(context: JobContext, standing: Standing): Promise<RunReport> {
  const { spec, progress, nowMs, log, signal } = context;
  const { stored, run, engine, decoder } = standing;
  const { plan } = stored;
  const asked = spec.engine.batch_size === "auto" ? defaultBatchRows : spec.engine.batch_size;
  const batchRows = plan.contract.fixedBatchRows ?? Math.min(asked, plan.commitRows);
  const resumed = countCommitted(run);
  await run.begin();
  if (resumed < spanCount(plan)) {
    signal.throwIfAborted();
    await warmUp(engine, plan.contract, plan.contract.fixedBatchRows ?? Math.min(batchRows, warmUpRows));
    signal.throwIfAborted();
  }
  const startedMs = nowMs();
  progress.start(pendingRows(plan, run.committed));
  const source = verifyingSource(context, { plan, decoder, fresh: standing.fresh });
  const scored = await scoreSpans({ ...context, source }, { plan, run, decoder, engine, batchRows }).finally(() => {
    progress.stop();
  });
  signal.throwIfAborted();
  await run.finish();
  log.debug(`finished run ${plan.runId}`);
  return {
    runId: plan.runId,
    status: "complete",
    rowsPlanned: plan.input.rows,
    rowsScored: scored.rows,
    rowsRejected: scored.rejected,
    rowsFiltered: scored.filtered,
    spansPlanned: spanCount(plan),
    spansCommitted: spanCount(plan),
    spansResumed: spanCount(plan) - scored.spansCommitted,
    shardsUnplanned: standing.shardsUnplanned,
    seconds: (nowMs() - startedMs) / 1000,
    batchSize: batchRows,
    provider: engine.provider,
    output: context.sink.target,
  };
}

/** Enough to lay out memory and page code in, and soon done with heavy models. */
const warmUpRows = 256;

/** The first call of a model costs more than the others: memory is laid out, code paged in. */
async function warmUp(engine: Engine, contract: Contract, batchRows: number): Promise<void> {
  const outputs = [...new Set(contract.outputs.map(({ tensor }) => tensor))];
  const calls = Array.from({ length: engine.concurrency }, () =>
    engine.run({ inputs: blankInputs(contract, batchRows), outputs }),
  );
  await Promise.allSettled(calls); // a model may refuse zeros; that says nothing about its rows
}

function alreadyComplete({ sink }: JobContext, plan: Plan): RunReport {
  return {
    runId: plan.runId,
    status: "already_complete",
    rowsPlanned: plan.input.rows,
    rowsScored: 0,
    rowsRejected: 0,
    rowsFiltered: 0,
    spansPlanned: spanCount(plan),
    spansCommitted: spanCount(plan),
    spansResumed: spanCount(plan),
    shardsUnplanned: 0,
    seconds: 0,
    batchSize: null,
    provider: null,
    output: sink.target,
  };
}

export function countCommitted(run: RunSink): number {
  return run.committed.reduce((sum, flag) => sum + flag, 0);
}

function pendingRows(plan: Plan, committed: Uint8Array): number {
  let rows = 0;
  for (let index = 0; index < committed.length; index += 1) {
    if (committed[index] === 0) {
      rows += Math.min(plan.commitRows, plan.input.rows - index * plan.commitRows);
    }
  }
  return rows;
}
