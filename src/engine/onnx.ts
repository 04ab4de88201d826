import type { Provider } from "../spec/engine-spec.js";
import { type EarlyThreads, startThread } from "./early-threads.js";
import { type Lane, openLane } from "./onnx-lane.js";
import type { WorkerSettings } from "./onnx-protocol.js";
import type { Engine, ModelFile } from "./port.js";

export interface OnnxEngineOptions {
  readonly model: ModelFile;
  /** The first takes what it can of the model, the next what is left, the CPU the rest. */
  readonly providers: readonly Provider[];
  /** Of CUDA and TensorRT; default: 0. */
  readonly deviceId?: number | undefined;
  /** Providers that were asked for before these. */
  readonly missing?: readonly string[] | undefined;
  /** Sessions, each in a worker thread of its own, with a copy of the model each. */
  readonly sessions: number;
  /** Threads of ONNX Runtime in each session. */
  readonly intraOpThreads: number;
  /** Used before others are started. */
  readonly early?: Pick<EarlyThreads, "take"> | undefined;
  /** A folder for what ONNX Runtime itself measures, a file a session. */
  readonly profileFolder?: string | undefined;
}

/** A batch at work and one waiting, so that a session never waits for the main thread. */
const batchesPerSession = 2;

/**
 * Loads a model into ONNX Runtime.
 * @throws ProviderFault when this machine cannot run a provider; JobError MODEL_INVALID when the model cannot be
 * loaded, MEMORY when it does not fit, MODEL_CHANGED when it is written to meanwhile
 */
export async function openOnnxEngine(options: OnnxEngineOptions): Promise<Engine> {
  const { providers, deviceId = 0, missing = [], sessions } = options;
  const [provider = "cpu"] = providers;
  const device = provider === "cpu" ? provider : `${provider}:${deviceId}`;
  const open = (): Promise<Lanes> => openLanes(options, { providers, deviceId, device });
  const first = await open();
  let lanes = Promise.resolve(first);
  return {
    signature: first[0].signature,
    provider,
    device,
    missing,
    sessions,
    concurrency: sessions * batchesPerSession,
    run: async (request) => await leastBusy(await lanes).run(request),
    host: provider === "cpu" ? (module) => first.map((lane) => lane.host(module)) : undefined,
    async renew() {
      const before = lanes;
      lanes = before.then(async (old) => {
        await closeAll(old);
        return await open();
      });
      await lanes;
    },
    async [Symbol.asyncDispose]() {
      await closeAll(await lanes.catch(() => []));
    },
  };
}

type Lanes = readonly [Lane, ...Lane[]];

/** All or none. */
async function openLanes(
  { model, sessions, intraOpThreads, profileFolder, early }: OnnxEngineOptions,
  where: Pick<WorkerSettings, "providers" | "deviceId" | "device">,
): Promise<Lanes> {
  const settings: WorkerSettings = { modelPath: model.path, intraOpThreads, ...where };
  const opened = await Promise.allSettled(
    Array.from({ length: sessions }, (_, session) => {
      const profile = profileFolder === undefined ? undefined : { folder: profileFolder, session };
      return openLane(early?.take() ?? startThread(), { ...settings, profile }, model.name);
    }),
  );
  const [first, ...others] = opened.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
  const refused = opened.find((result) => result.status === "rejected");
  try {
    if (refused !== undefined || first === undefined) {
      throw refused?.reason ?? new Error("an engine needs at least one session");
    }
    await model.check();
    return [first, ...others];
  } catch (error) {
    await closeAll(first === undefined ? [] : [first, ...others]);
    throw error;
  }
}

async function closeAll(lanes: readonly Lane[]): Promise<void> {
  await Promise.all(lanes.map((lane) => lane.close()));
}

function leastBusy([first, ...others]: Lanes): Lane {
  return others.reduce((best, lane) => (lane.waiting < best.waiting ? lane : best), first);
}
