import { withUsedExpressions } from "../../binding/shared-projection.js";
import type { Engine } from "../../engine/port.js";
import type { Decoder } from "../../formats/port.js";
import { challengerRequest } from "../../plan/make-plan.js";
import type { PlannedChallenger } from "../../plan/plan.js";
import { modelUri } from "../../spec/model-spec.js";
import { atKey, type JobContext } from "../../scoring/context.js";
import { loadEngine } from "../loading.js";
import { openPinnedModel, pinnedTokenizers } from "../model.js";
import { bindFirstShard } from "../planning/bind-model.js";
import type { SeenSchema } from "../planning/read-shards.js";
import { challengerContext, forChallenger } from "./challenger-context.js";

export interface ChallengerPlanning {
  readonly decoder: Decoder;
  /** The champion's engine, a thread of which opens the challenger if it can. */
  readonly champion: Engine;
}

/**
 * Finds the challenger of the spec and binds it to the columns of the first shard; undefined: the spec has none.
 * @throws JobError CONTRACT, and those of `openPinnedModel`
 */
export async function planChallenger(
  context: JobContext,
  seen: SeenSchema | undefined,
  tools: ChallengerPlanning,
): Promise<PlannedChallenger | undefined> {
  const own = challengerContext(context);
  return own && (await forChallenger(() => planOwn({ context, own }, seen, tools)));
}

async function planOwn(
  { context, own }: { readonly context: JobContext; readonly own: JobContext },
  seen: SeenSchema | undefined,
  { decoder, champion }: ChallengerPlanning,
): Promise<PlannedChallenger | undefined> {
  const { challenger } = context.spec;
  if (challenger === undefined) {
    return undefined;
  }
  const { model, version, origin } = await openPinnedModel(own);
  await using loading = loadEngine(own, model, { inputBytes: 0, preview: true, champion });
  const engine = await loading.engine;
  const takenElsewhere = new Set(Object.keys(context.spec.input.columns)); // the champion refuses those that nothing takes
  const bound = await atKey(own, ["model"], () =>
    bindFirstShard(own, seen, { decoder, model, engine, takenElsewhere }),
  );
  const contract = withUsedExpressions({ ...bound, passthrough: [] });
  const { tolerance } = challenger;
  const pinned = {
    uri: modelUri(challenger),
    sha256: model.sha256,
    version,
    origin,
    tokenizers: pinnedTokenizers(model),
  };
  return { ...pinned, request: challengerRequest(challenger), contract, tolerance };
}
