import type { Engine } from "../../engine/port.js";
import type { Plan } from "../../plan/plan.js";
import type { ProviderChoice } from "../../report/provider-choice.js";
import type { JobContext } from "../../scoring/context.js";
import type { RunSink } from "../../sink/port.js";
import { rowsLeft } from "../score-and-finish.js";
import { checkGolden } from "../golden/golden.js";
import { beginLoading, type LoadedForRun, type LoadingEngine } from "../loading.js";
import { chooseProvider } from "./choose-provider.js";

interface FastestOptions extends Omit<LoadedForRun, "provider"> {
  readonly plan: Plan;
  readonly run: RunSink;
  /** The model as it was loaded for planning, on the CPU if the provider is to be chosen. */
  readonly loading: LoadingEngine;
}

/** The engine that scores an attempt. Disposing closes it if it was opened here. */
export interface FastestEngine extends AsyncDisposable {
  readonly engine: Engine;
  /** undefined: the spec lists the providers. */
  readonly choice: ProviderChoice | undefined;
}

/** Returns the engine that is open; with `providers: auto`, that of the provider which is chosen for the rows left. */
export async function openFastest(context: JobContext, options: FastestOptions): Promise<FastestEngine> {
  const { plan, run, loading, listing, model } = options;
  const engine = await loading.engine;
  const { providerTrials: trials, log } = context;
  if (trials === undefined) {
    return { engine, choice: undefined, [Symbol.asyncDispose]: () => Promise.resolve() };
  }
  let isOpen = true;
  const release = async (): Promise<void> => {
    isOpen = false;
    await loading[Symbol.asyncDispose]();
  };
  const rows = rowsLeft(context, plan, run);
  const choice = await chooseProvider(context, { trials, plan, engine, rows, release });
  for (const { provider, reason } of choice.leftOut) {
    log.warn(`${provider} is left out: ${reason}`);
  }
  log.info(`scoring on ${choice.provider}: ${choice.why}`);
  if (isOpen && choice.provider === engine.provider) {
    return { engine, choice, [Symbol.asyncDispose]: () => Promise.resolve() };
  }
  await loading[Symbol.asyncDispose](); // a device and the CPU do not need the model twice
  const opened = beginLoading(context, { listing, model, provider: choice.provider });
  try {
    const other = await opened.engine;
    await checkGolden(context, { plan, engine: other });
    return { engine: other, choice, [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose]() };
  } catch (error) {
    await opened[Symbol.asyncDispose]();
    throw error;
  }
}
