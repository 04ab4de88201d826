import { MessageChannel, type MessagePort } from "node:worker_threads";
import type { ModelSignature } from "../../columnar/tensor.js";
import type { Line } from "../../util/worker-port.js";
import type { Provider } from "../../spec/engine-spec.js";
import { type EarlyThreads, startThread } from "./early-threads.js";
import { type Lane, openLane } from "./session-client.js";
import type { WorkerSettings } from "./protocol.js";
import type { Engine, ModelFile, TextTensors } from "../port.js";
import { noTexts } from "../../onnx/text-names.js";

export interface OnnxEngineOptions {
  readonly model: ModelFile;
  /** Those of its texts that are passed as numbers; default: none. */
  readonly texts?: TextTensors | undefined;
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
 * Loads a model into ONNX Runtime. The engine is there when the first of its sessions is: what opens the others, and
 * what one of them is refused with, the first call meets that finds it.
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
    signature: first.signature,
    provider,
    device,
    missing,
    sessions,
    opened: async () => {
      await (await lanes).opened();
    },
    concurrency: sessions * batchesPerSession,
    run: async (request) => await (await lanes).leastBusy().run(request),
    host: provider === "cpu" ? first.host : undefined,
    async renew() {
      const before = lanes;
      lanes = before.then(async (old) => {
        await old.close();
        return await open();
      });
      await lanes;
    },
    async [Symbol.asyncDispose]() {
      await (await lanes.catch(() => undefined))?.close();
    },
  };
}

/** Sessions, of which some may still be opened. */
interface Lanes {
  readonly signature: ModelSignature;
  opened(): Promise<unknown>;
  /** Of those that are open. @throws what one of the others was refused with */
  leastBusy(): Lane;
  /** On all, as soon as each is open. */
  readonly host: (module: URL) => Line[];
  close(): Promise<void>;
}

type Where = Pick<WorkerSettings, "providers" | "deviceId" | "device">;

/** All or none. */
async function openLanes(options: OnnxEngineOptions, where: Where): Promise<Lanes> {
  const open: Lane[] = [];
  const lines: MessagePort[] = [];
  let refused: { readonly error: unknown } | undefined;
  const opening = Array.from({ length: options.sessions }, async (_, session) => {
    try {
      const lane = await openChecked(options, where, session);
      open.push(lane);
      return lane;
    } catch (error) {
      refused ??= { error };
      throw error;
    }
  });
  const close = async (): Promise<void> => {
    await Promise.allSettled(opening);
    for (const line of lines) {
      line.close();
    }
    await Promise.all(open.map((lane) => lane.close()));
  };
  try {
    if (where.device !== "cpu") {
      await Promise.all(opening); // they share its memory: all are there, or it is another provider's turn
    }
    const first = await Promise.race(opening);
    return {
      signature: first.signature,
      opened: () => Promise.all(opening),
      leastBusy() {
        if (refused !== undefined) {
          throw refused.error;
        }
        return open.reduce((best, lane) => (lane.waiting < best.waiting ? lane : best), first);
      },
      host(module) {
        const hosted = opening.map((lane) => hostOn(lane, module));
        lines.push(...hosted);
        return hosted;
      },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** What it has loaded is what was pinned. */
async function openChecked(
  { model, texts = noTexts, intraOpThreads, profileFolder, early }: OnnxEngineOptions,
  where: Where,
  session: number,
): Promise<Lane> {
  const profile = profileFolder === undefined ? undefined : { folder: profileFolder, session };
  const settings: WorkerSettings = { modelPath: model.path, texts, intraOpThreads, ...where, profile };
  const lane = await openLane(early?.take() ?? startThread(), settings, model.name);
  try {
    await model.check();
    return lane;
  } catch (error) {
    await lane.close();
    throw error;
  }
}

/** The line ends where the session is refused. */
function hostOn(opening: Promise<Lane>, module: URL): MessagePort {
  const { port1, port2 } = new MessageChannel();
  const attach = async (): Promise<void> => {
    try {
      (await opening).host(module, port2);
    } catch {
      port2.close();
    }
  };
  void attach();
  return port1;
}
