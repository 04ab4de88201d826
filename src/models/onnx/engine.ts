import { getSystemErrorName } from "node:util";
import { MessageChannel, type MessagePort } from "node:worker_threads";
import { numericBuffers, type TextTensors } from "../../columns/tensor.js";
import { noTexts } from "../file/texts.js";
import type { Provider } from "../../job/jobfile/engine-spec.js";
import { JobError } from "../../base/errors.js";
import { ifOpened } from "../../base/promises.js";
import { openRpcClient, untilExit, type WorkerPort } from "../../base/rpc.js";
import type { Engine, EngineRequest, EngineResponse, LocalEngine, TreesState } from "../engine.js";
import { refusedTokenizer, type TokenizerPlace } from "../tokens.js";
import { openingFault, ProviderFault, modelRefusal, runningFault, shortFault, withoutSource } from "./faults.js";
import type { SessionProtocol, SessionResponse, WorkerSettings } from "./protocol.js";

interface OnnxModel {
  readonly path: string;
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
  readonly intraOpThreads: number;
  /** A worker that runs `serveSession` and waits for a model. `session`: counts from 0. */
  readonly startWorker: (session: number) => WorkerPort;
  /** A folder for what ONNX Runtime itself measures, a file a session. */
  readonly profileFolder?: string | undefined;
}

export interface OnnxEngine extends Engine {
  readonly local: LocalEngine;
}

/** A batch at work and one waiting, so that a session never waits for the main thread. */
const batchesPerSession = 2;

const numbered: ReadonlySet<Provider> = new Set(["cuda", "tensorrt", "dml"]);

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
  const first = await openSessions(options, device);
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
      async opened() {
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
          return await openSessions(options, device);
        });
        await sessionsNow;
      },
    },
    async [Symbol.asyncDispose]() {
      await (await ifOpened(sessionsNow))?.close();
    },
  };
}

async function openSessions(options: OnnxEngineOptions, device: string) {
  const open: SessionClient[] = [];
  const ports: MessagePort[] = [];
  let refused: { readonly error: unknown } | undefined;
  /** The last report of a session on its trees counts, unless one found a mismatch. */
  let trees: TreesState = { kind: "none" };
  const onTrees = (state: TreesState): void => {
    trees = trees.kind === "mismatch" ? trees : state;
    options.onTrees?.(state);
  };
  const opening = Array.from({ length: options.sessions }, async (_, session) => {
    try {
      const client = await openSession(options, device, session, onTrees);
      open.push(client);
      return client;
    } catch (error) {
      refused ??= { error };
      throw error;
    }
  });
  const close = async (): Promise<void> => {
    await Promise.allSettled(opening);
    for (const port of ports) {
      port.close();
    }
    await Promise.all(open.map((client) => client.close()));
  };

  try {
    if (device !== "cpu") {
      await Promise.all(opening); // they share its memory: all are there, or it is another provider's turn
    }
    const first = await Promise.race(opening);
    return {
      signature: first.signature,
      operators: first.operators,
      opened: () => Promise.all(opening),
      /** @throws the error of a session that could not be opened */
      leastBusy() {
        if (refused !== undefined) {
          throw refused.error;
        }
        return open.reduce((best, client) => (client.waiting < best.waiting ? client : best), first);
      },
      /** Ports to all workers; each answers as soon as its session is open. */
      unitPorts: (): WorkerPort[] => {
        const opened = opening.map(portTo);
        ports.push(...opened);
        return opened;
      },
      async expect(rows: number, rowMs: number) {
        await Promise.allSettled(opening); // the next call reports why one cannot be opened
        await Promise.all(open.map((client) => client.expect(rows, rowMs)));
      },
      trees: () => trees,
      close,
    };
  } catch (error) {
    await close();
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

type SessionClient = Awaited<ReturnType<typeof openSession>>;

async function openSession(
  options: OnnxEngineOptions,
  device: string,
  session: number,
  onTrees: (state: TreesState) => void,
) {
  const { model, texts = noTexts, tokenizers = [], trees, providers, deviceId = 0, intraOpThreads } = options;
  const { profileFolder, startWorker } = options;
  const { name } = model;
  const settings: WorkerSettings = {
    modelPath: model.path,
    texts,
    tokenizers: tokenizers.map(({ path, uri, sha256 }) => ({ path, uri, sha256 })),
    trees: trees && { sha256: trees.sha256, sizeBytes: trees.sizeBytes },
    intraOpThreads,
    providers,
    deviceId,
    device,
    profile: profileFolder === undefined ? undefined : { folder: profileFolder, session },
  };
  const worker = startWorker(session);
  const ended = untilExit(worker);
  const client = openRpcClient<SessionProtocol>(worker, {
    doing: `scoring with ${name}`,
    onNotice: { trees: onTrees },
  });
  /** Closes the session once it has answered all earlier calls. */
  const close = async (): Promise<void> => {
    client.notify("close", { body: undefined });
    await ended;
  };

  const opened = await client.call("open", { body: settings }).result;
  try {
    if (opened.kind === "refused") {
      const { tokenizer, message } = opened;
      throw tokenizer === undefined ? refusedModel(settings, name, message) : refusedTokenizer(tokenizer, message);
    }
    await model.check();
  } catch (error) {
    await close();
    throw error;
  }

  return {
    signature: opened.signature,
    operators: opened.operators,
    get waiting() {
      return client.broken === undefined ? client.pending : Number.POSITIVE_INFINITY; // it would never answer
    },
    async run(request: EngineRequest): Promise<EngineResponse> {
      const call = client.call("run", { body: request, transfer: [...new Set(numericBuffers(request.inputs))] });
      return responseOf(await call.result, `scoring with ${name} on ${device}`);
    },
    async expect(rows: number, rowMs: number) {
      await client.call("expect", { body: { rows, rowMs } }).result;
    },
    serveUnits(port: MessagePort) {
      if (client.broken !== undefined) {
        port.close(); // a thread that has ended would never answer
        return;
      }
      client.notify("units", { body: port, transfer: [port] });
    },
    close,
  };
}

/** Tells failures of the device from those of the model. @throws JobError DEVICE: no row caused it, so none is rejected */
function responseOf(response: SessionResponse, doing: string): EngineResponse {
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
  throw new JobError("DEVICE", `${doing}: ${shortFault(response.message)}`, {
    hint: "run the same command again; if it fails again, see `infer-batch doctor` and the kernel's log (dmesg)",
  });
}

function refusedModel({ modelPath, providers, device }: WorkerSettings, name: string, message: string): Error {
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
  const said = message.replace(`Load model from ${modelPath} failed:`, "").replaceAll(modelPath, name);
  const { found, hint } = modelRefusal(said);
  return new JobError("MODEL_INVALID", `loading model ${name}: ${found}`, { hint });
}
