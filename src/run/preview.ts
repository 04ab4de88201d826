import type { Contract } from "../batch/contract.js";
import { runIdOf } from "../plan/identity.js";
import type { Plan } from "../plan/plan.js";
import type { JobContext } from "./job.js";
import { awaitInput, bindFirstShard, listInput, planRun, requireListed, seenSchema } from "./planning.js";
import { openPinnedModel } from "./run.js";

/** The plan that `run` would make now, whether or not one stands at the target. Writes nothing. */
export async function previewPlan(context: JobContext): Promise<Plan> {
  const { spec } = context;
  const runId = runIdOf(spec.name, spec.params, context.sha256);
  await awaitInput(context);
  const listing = await listInput(context);
  requireListed(context, listing);
  const model = await openPinnedModel(context);
  await using decoder = await context.openDecoder(listing.folders);
  await using engine = await context.openEngine(model, { inputBytes: 0 });
  return await planRun(context, { runId, listed: listing.shards, decoder, model, engine });
}

/** Binds the model to the first shard, as `run` would; undefined while there is no shard. Writes nothing. */
export async function previewContract(context: JobContext): Promise<Contract | undefined> {
  const { spec, source } = context;
  const model = await openPinnedModel(context);
  const listing = await listInput(context);
  requireListed(context, listing);
  const [shard] = listing.shards;
  await using engine = await context.openEngine(model, { inputBytes: 0 });
  if (shard === undefined) {
    return undefined;
  }
  await using decoder = await context.openDecoder(listing.folders);
  await using opened = await source.open(shard);
  for await (const footer of decoder.footers([opened])) {
    return await bindFirstShard(context, seenSchema(spec, { shard, name: opened.name }, footer), {
      decoder,
      model,
      engine,
    });
  }
  return undefined;
}
