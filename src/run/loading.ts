import type { Engine } from "../engine/port.js";
import type { Model } from "../models/port.js";
import type { EngineNeed, JobContext, ScoringContext } from "../scoring/context.js";
import type { Listing } from "../storage/port.js";
import { awaitedLater, ifOpened } from "../util/promises.js";

/** An engine that other threads open while this one continues. */
export interface LoadingEngine extends AsyncDisposable {
  /** Rejects if the engine cannot be opened. */
  readonly engine: Promise<Engine>;
}

/** Begins to open an engine. Disposing waits until it is open, and closes it; a second time does nothing. */
export function loadEngine(context: ScoringContext, model: Model, need: EngineNeed): LoadingEngine {
  const engine = awaitedLater(context.openEngine(model, need));
  let closed: Promise<void> | undefined;
  const close = async (): Promise<void> => {
    await (await ifOpened(engine))?.[Symbol.asyncDispose]();
  };
  return {
    engine,
    async [Symbol.asyncDispose]() {
      closed ??= close();
      await closed;
    },
  };
}

/** What a run loads. */
export interface LoadedForRun {
  readonly listing: Listing;
  readonly model: Model;
}

/** Begins to load the model of a run. */
export function beginLoading(context: JobContext, { listing, model }: LoadedForRun): LoadingEngine {
  const inputBytes = listing.shards.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  return loadEngine(context, model, { inputBytes });
}

/** Waits for both, then returns both results. If both fail, throws the error of the first. */
export async function both<A, B>(first: Promise<A>, second: Promise<B>): Promise<[A, B]> {
  await Promise.allSettled([first, second]);
  return [await first, await second];
}
