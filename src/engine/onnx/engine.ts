import { getSystemErrorName } from "node:util";
import { MessageChannel, type MessagePort } from "node:worker_threads";
import { type ModelSignature, numericBuffers, type TextTensors } from "../../columnar/tensor.js";
import { noTexts } from "../../onnx/texts.js";
import type { Provider } from "../../spec/engine-spec.js";
import { JobError } from "../../util/errors.js";
import { ifOpened } from "../../util/promises.js";
import { openRpcClient, untilExit, type WorkerPort } from "../../util/rpc.js";
import type { Engine, EngineRequest, EngineResponse, LocalEngine, Operators, TreesState } from "../port.js";
import { refusedTokenizer, type TokenizerPlace } from "../tokens.js";
import { openingFault, ProviderFault, refusalOf, runningFault, shortFault, withoutSource } from "./faults.js";
import type { SessionProtocol, SessionResponse, WorkerSettings } from "./protocol.js";

/** An ONNX file to be loaded. */
interface OnnxModel {
  readonly path: string;
  /** The model as messages name it. */
  readonly name: string;
  /** @throws JobError MODEL_CHANGED when the file is not the one that was digested */
  check(): Promise<void>;
}

interface OnnxEngineOptions {
  readonly model: OnnxModel;
  /** The model's text tensors that are passed as numbers; default: none. */
  readonly texts?: TextTensors | undefined;
  /** The model has trees, which may be compiled: the digest of its file, and its size. Default: they are not. */
  readonly trees?: { readonly sha256: string; readonly sizeBytes: number } | undefined;
  /** The tokenizers of the model's inputs. Default: none. */
  readonly tokenizers?: readonly TokenizerPlace[] | undefined;
  /** Called by each session once its trees were compiled, or could not be. */
  readonly onTrees?: ((state: TreesState) => void) | undefined;
  /** The first one computes all operators that it can, the next one those that are left, the CPU the rest. */
  readonly providers: readonly Provider[];
  /** The device number for CUDA, TensorRT and DirectML; default: 0. */
  readonly deviceId?: number | undefined;
  /** Providers that were asked for before these. */
  readonly missing?: readonly string[] | undefined;
  /** Sessions, each in a worker thread of its own, with a copy of the model each. */
  readonly sessions: number;
  /** Threads of ONNX Runtime in each session. */
  readonly intraOpThreads: number;
  /** A worker that runs `serveSession` and waits for a model. `session`: counts from 0. */
  readonly startWorker: (session: number) => WorkerPort;
  /** A folder for what ONNX Runtime itself measures, a file a session. */
  readonly profileFolder?: string | undefined;
}

/** An engine that computes on this machine. */
export interface OnnxEngine extends Engine {
  readonly local: LocalEngine;
}

/** A batch at work and one waiting, so that a session never waits for the main thread. */
const batchesPerSession = 2;

/**
 * Loads a model into ONNX Runtime. The engine is open when its first session is open. If another session cannot be
 * opened, the first call that needs it fails with its error.
 * @throws ProviderFault when this machine cannot run a provider; JobError MODEL_INVALID when the model cannot be
 * loaded, MEMORY when it does not fit, MODEL_CHANGED when its file changes while it is loaded
 */
export async function openOnnxEngine(options: OnnxEngineOptions): Promise<OnnxEngine> {
  const { providers, deviceId = 0, missing = [], sessions } = options;
  const [provider = "cpu"] = providers;
  const device = numbered.has(provider) ? `${provider}:${deviceId}` : provider;
  const open = (): Promise<Sessions> => openSessions(options, { providers, deviceId, device });
  const first = await open();
  let sessionsNow = Promise.resolve(first);
  return {
    signature: first.signature,
    provider,
    concurrency: sessions * batchesPerSession,
    run: async (request) => await (await sessionsNow).leastBusy().run(request),
    local: {
      device,
      missing,
      operators: first.operators,
      sessions,
      opened: async () => {
        await (await sessionsNow).opened();
      },
      trees: () => first.trees(),
      async expect(rows, rowMs) {
        await (await sessionsNow).expect(rows / sessions, rowMs);
      },
      unitPorts: provider === "cpu" ? first.unitPorts : undefined,
      async renew() {
        const before = sessionsNow;
        sessionsNow = before.then(async (old) => {
          await old.close();
          return await open();
        });
        await sessionsNow;
      },
    },
    async [Symbol.asyncDispose]() {
      await (await ifOpened(sessionsNow))?.close();
    },
  };
}

/** Providers that take the number of a device. */
const numbered: ReadonlySet<Provider> = new Set(["cuda", "tensorrt", "dml"]);

/** Sessions, of which some may still be opened. */
interface Sessions {
  readonly signature: ModelSignature;
  readonly operators: Operators;
  opened(): Promise<unknown>;
  /**
   * Returns the open session with the fewest waiting batches. @throws the error of a session that could not be opened
   */
  leastBusy(): SessionClient;
  /** To all workers; each answers as soon as its session is open. */
  readonly unitPorts: () => WorkerPort[];
  expect(rows: number, rowMs: number): Promise<void>;
  readonly trees: () => TreesState;
  close(): Promise<void>;
}

type Where = Pick<WorkerSettings, "providers" | "deviceId" | "device">;

async function openSessions(options: OnnxEngineOptions, where: Where): Promise<Sessions> {
  const open: SessionClient[] = [];
  let refused: { readonly error: unknown } | undefined;
  const trees = keepTreesState(options);
  const opening = Array.from({ length: options.sessions }, async (_, session) => {
    try {
      const client = await openChecked(options, where, { session, onTrees: trees.take });
      open.push(client);
      return client;
    } catch (error) {
      refused ??= { error };
      throw error;
    }
  });
  const { close: closePorts, ...ports } = portsTo(opening);
  const close = async (): Promise<void> => {
    await Promise.allSettled(opening);
    closePorts();
    await Promise.all(open.map((client) => client.close()));
  };
  try {
    if (where.device !== "cpu") {
      await Promise.all(opening); // they share its memory: all are there, or it is another provider's turn
    }
    const first = await Promise.race(opening);
    return {
      signature: first.signature,
      operators: first.operators,
      opened: () => Promise.all(opening),
      leastBusy() {
        if (refused !== undefined) {
          throw refused.error;
        }
        return open.reduce((best, client) => (client.waiting < best.waiting ? client : best), first);
      },
      ...ports,
      async expect(rows, rowMs) {
        await Promise.allSettled(opening); // the next call reports why one cannot be opened
        await Promise.all(open.map((client) => client.expect(rows, rowMs)));
      },
      trees: trees.now,
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

function portsTo(
  opening: readonly Promise<SessionClient>[],
): Pick<Sessions, "unitPorts"> & { readonly close: () => void } {
  const ports: MessagePort[] = [];
  return {
    unitPorts() {
      const opened = opening.map(portTo);
      ports.push(...opened);
      return opened;
    },
    close() {
      for (const port of ports) {
        port.close();
      }
    },
  };
}

/** Combines the sessions' reports on their trees: the last report counts, unless a session found a mismatch. */
function keepTreesState({ onTrees }: Pick<OnnxEngineOptions, "onTrees">): {
  readonly take: (state: TreesState) => void;
  readonly now: () => TreesState;
} {
  let last: TreesState = { kind: "none" };
  return {
    take(state) {
      last = last.kind === "mismatch" ? last : state;
      onTrees?.(state);
    },
    now: () => last,
  };
}

/** Opens a session, and checks that it has loaded the pinned model. */
async function openChecked(
  { model, texts = noTexts, tokenizers = [], trees, intraOpThreads, profileFolder, startWorker }: OnnxEngineOptions,
  where: Where,
  { session, onTrees }: { readonly session: number; readonly onTrees: (state: TreesState) => void },
): Promise<SessionClient> {
  const profile = profileFolder === undefined ? undefined : { folder: profileFolder, session };
  const known = trees && { sha256: trees.sha256, sizeBytes: trees.sizeBytes };
  const places = tokenizers.map(({ path, uri, sha256 }) => ({ path, uri, sha256 }));
  const loaded = { modelPath: model.path, texts, tokenizers: places, trees: known };
  const settings: WorkerSettings = { ...loaded, intraOpThreads, ...where, profile };
  const client = await openSessionClient(startWorker(session), settings, { name: model.name, onTrees });
  try {
    await model.check();
    return client;
  } catch (error) {
    await client.close();
    throw error;
  }
}

/** Returns a port whose other end a session's thread gets. The port ends where the session is refused. */
function portTo(opening: Promise<SessionClient>): MessagePort {
  const { port1, port2 } = new MessageChannel();
  const attach = async (): Promise<void> => {
    try {
      (await opening).serveUnits(port2);
    } catch {
      port2.close(); // `opened` and the next `run` report why it cannot be opened
    }
  };
  void attach();
  return port1;
}

/** A session in a worker of its own. */
interface SessionClient {
  readonly signature: ModelSignature;
  readonly operators: Operators;
  readonly waiting: number;
  run(request: EngineRequest): Promise<EngineResponse>;
  /** Tells how many rows will come to it, see `LocalEngine.expect`. */
  expect(rows: number, rowMs: number): Promise<void>;
  /** Has the worker read and score units, see `Engine.unitPorts`. */
  serveUnits(port: MessagePort): void;
  /** Closes the session once it has answered all earlier calls. */
  close(): Promise<void>;
}

interface ClientOptions {
  /** The model as messages name it. */
  readonly name: string;
  /** Called when the session has compiled its trees, or has found why it will not. */
  readonly onTrees: (state: TreesState) => void;
}

/**
 * Loads the model in a thread that waits for one. `worker`: the thread, or a port that it serves sessions on.
 * @throws ProviderFault, JobError MODEL_INVALID, MEMORY
 */
async function openSessionClient(
  worker: WorkerPort,
  settings: WorkerSettings,
  { name, onTrees }: ClientOptions,
): Promise<SessionClient> {
  const ended = untilExit(worker);
  const client = openRpcClient<SessionProtocol>(worker, {
    doing: `scoring with ${name}`,
    onNotice: { trees: onTrees },
  });
  const close = async (): Promise<void> => {
    client.notify("close", { body: undefined });
    await ended;
  };
  const opened = await client.call("open", { body: settings }).result;
  if (opened.kind === "refused") {
    await close();
    const { tokenizer, message } = opened;
    throw tokenizer === undefined ? refusedModel({ settings, name }, message) : refusedTokenizer(tokenizer, message);
  }
  return {
    signature: opened.signature,
    operators: opened.operators,
    get waiting() {
      return client.broken === undefined ? client.pending : Number.POSITIVE_INFINITY; // it would never answer
    },
    async run(request) {
      const call = client.call("run", { body: request, transfer: [...new Set(numericBuffers(request.inputs))] });
      return responseOf({ settings, name }, await call.result);
    },
    async expect(rows, rowMs) {
      await client.call("expect", { body: { rows, rowMs } }).result;
    },
    serveUnits(port) {
      if (client.broken !== undefined) {
        port.close(); // a thread that has ended would never answer
        return;
      }
      client.notify("units", { body: port, transfer: [port] });
    },
    close,
  };
}

/** Tells failures of the device from those of the model. @throws JobError DEVICE */
function responseOf(model: LoadedModel, response: SessionResponse): EngineResponse {
  if (response.kind !== "failed") {
    return response;
  }
  const fault = runningFault(response.message);
  if (fault === undefined) {
    return { ...response, message: withoutSource(response.message) };
  }
  if (fault.kind === "memory") {
    return { ...response, kind: "exhausted", message: shortFault(response.message) };
  }
  throw brokenDevice(model, response.message);
}

interface LoadedModel {
  readonly name: string;
  readonly settings: WorkerSettings;
}

function refusedModel({ settings: { modelPath, providers, device }, name }: LoadedModel, message: string): Error {
  const fault = openingFault(message, providers);
  if (fault?.kind === "missing") {
    return new ProviderFault(fault.provider, shortFault(message));
  }
  if (fault?.kind === "memory") {
    return new JobError("MEMORY", `loading model ${name} on ${device}: ${shortFault(message)}`, {
      hint: "something else may hold its memory: nvidia-smi lists the processes; run the same command again",
    });
  }
  const [, errno] = /system error number (\d{1,4})$/.exec(message) ?? [];
  if (errno !== undefined) {
    const cause = Object.assign(new Error(message), { code: getSystemErrorName(-Number(errno)) });
    return new JobError("DISK", `loading model ${name}: ${cause.code}`, { hint: "run the same command again", cause });
  }
  // "Load model from x.onnx failed:Protobuf parsing failed."
  const { found, hint } = refusalOf(
    message.replace(`Load model from ${modelPath} failed:`, "").replaceAll(modelPath, name),
  );
  return new JobError("MODEL_INVALID", `loading model ${name}: ${found}`, { hint });
}

/** Makes the error for a device that fails. It is no fault of a row, so that no row is rejected. */
function brokenDevice({ settings: { device }, name }: LoadedModel, message: string): JobError {
  return new JobError("DEVICE", `scoring with ${name} on ${device}: ${shortFault(message)}`, {
    hint: "run the same command again; if it fails again, see `infer-batch doctor` and the kernel's log (dmesg)",
  });
}
