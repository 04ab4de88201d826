import type { Contract } from "../batch/contract.js";
import type { RejectedRow } from "../batch/types.js";
import { runIdOf } from "../plan/identity.js";
import type { Plan, RunId } from "../plan/plan.js";
import { spanCount } from "../plan/spans.js";
import type { JobContext } from "./job.js";
import { awaitInput, bindFirstShard, listInput, planRun, requireListed, seenSchema } from "./planning.js";
import { countCommitted } from "./carry-out.js";
import { openPinnedModel } from "./run.js";

export interface RunState {
  readonly runId: RunId;
  readonly status: "not_planned" | "unfinished" | "complete";
  readonly rowsPlanned: number;
  readonly spansPlanned: number;
  readonly spansCommitted: number;
  readonly output: string;
}

/** How far a run is, from what is at the target alone. Writes nothing. */
export async function runState(context: JobContext): Promise<RunState> {
  const { spec, sink } = context;
  const runId = runIdOf(spec.name, spec.params, context.sha256);
  const stored = await sink.find(runId);
  if (stored === undefined) {
    return { runId, status: "not_planned", rowsPlanned: 0, spansPlanned: 0, spansCommitted: 0, output: sink.target };
  }
  const run = await sink.open(stored);
  return {
    runId,
    status: run.finished ? "complete" : "unfinished",
    rowsPlanned: stored.plan.input.rows,
    spansPlanned: spanCount(stored.plan),
    spansCommitted: countCommitted(run),
    output: sink.target,
  };
}

/** The rejected rows of the run's committed spans. */
export async function* rejectedRows({ spec, sink, sha256 }: JobContext): AsyncGenerator<RejectedRow> {
  const stored = await sink.find(runIdOf(spec.name, spec.params, sha256));
  if (stored !== undefined) {
    const run = await sink.open(stored);
    yield* run.rejects();
  }
}

/** The plan that `run` would make now, whether or not one stands at the target. Writes nothing. */
export async function previewPlan(context: JobContext): Promise<Plan> {
  const { spec } = context;
  const runId = runIdOf(spec.name, spec.params, context.sha256);
  await awaitInput(context);
  const listing = await listInput(context);
  requireListed(context, listing);
  const model = await openPinnedModel(context);
  await using decoder = await context.openDecoder(listing.folders);
  await using engine = await context.openEngine(model);
  return await planRun(context, { runId, listed: listing.shards, decoder, model, engine });
}

/** Binds the model to the first shard, as `run` would; undefined while there is no shard. Writes nothing. */
export async function previewContract(context: JobContext): Promise<Contract | undefined> {
  const { spec, source } = context;
  const model = await openPinnedModel(context);
  const listing = await listInput(context);
  requireListed(context, listing);
  const [shard] = listing.shards;
  await using engine = await context.openEngine(model);
  if (shard === undefined) {
    return undefined;
  }
  await using decoder = await context.openDecoder(listing.folders);
  await using opened = await source.open(shard);
  for await (const footer of decoder.footers([opened.path])) {
    return await bindFirstShard(context, seenSchema(spec, shard.uri, footer), { decoder, model, engine });
  }
  return undefined;
}
