import type { Engine } from "../engine/port.js";
import type { ModelFile } from "../models/port.js";
import type { EngineNeed, ScoringContext } from "../scoring/context.js";
import { awaitedLater, ifOpened } from "../util/promises.js";

/** An engine that is being opened, in threads of its own: there is other work meanwhile. */
export interface LoadingEngine extends AsyncDisposable {
  /** A refusal is met by whoever waits for it. */
  readonly engine: Promise<Engine>;
}

/** Closing it waits until the engine is open, and closes that. */
export function loadEngine(context: ScoringContext, model: ModelFile, need: EngineNeed): LoadingEngine {
  const engine = awaitedLater(context.openEngine(model, need));
  return {
    engine,
    async [Symbol.asyncDispose]() {
      await (await ifOpened(engine))?.[Symbol.asyncDispose]();
    },
  };
}

/** What both give, once both have ended: where both fail, the first one's error is told. */
export async function both<A, B>(first: Promise<A>, second: Promise<B>): Promise<[A, B]> {
  await Promise.allSettled([first, second]);
  return [await first, await second];
}
