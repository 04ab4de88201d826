import { Worker } from "node:worker_threads";
import type { ModelSignature } from "../batch/tensor.js";
import { JobError } from "../errors.js";
import type { FromWorker, ToWorker, WorkerSettings } from "./onnx-protocol.js";
import type { Engine, EngineRequest, EngineResponse, ModelFile } from "./port.js";

export interface OnnxEngineOptions {
  readonly model: ModelFile;
  readonly providers: readonly string[];
  /** Sessions, each in a worker thread of its own, with a copy of the model each. */
  readonly sessions: number;
  /** Threads of ONNX Runtime in each session. */
  readonly intraOpThreads: number;
  /** A folder for what ONNX Runtime itself measures, a file a session. */
  readonly profileFolder?: string | undefined;
}

/** A batch at work and one waiting, so that a session never waits for the main thread. */
const batchesPerSession = 2;

interface Pending {
  resolve(response: EngineResponse): void;
  reject(error: Error): void;
}

interface Lane {
  readonly signature: ModelSignature;
  readonly waiting: number;
  run(request: EngineRequest): Promise<EngineResponse>;
  close(): Promise<void>;
}

/**
 * Loads a model into ONNX Runtime.
 * @throws JobError MODEL_INVALID when it cannot be loaded, MODEL_CHANGED when it is written to meanwhile
 */
export async function openOnnxEngine({
  model,
  providers,
  sessions,
  intraOpThreads,
  profileFolder,
}: OnnxEngineOptions): Promise<Engine> {
  // Read by the native library when it loads: a scoring job sends nothing anywhere that its spec does not name.
  process.env["ORT_DISABLE_TELEMETRY"] = "1";
  const settings: WorkerSettings = { modelPath: model.path, providers, intraOpThreads };
  const opened = await Promise.allSettled(
    Array.from({ length: sessions }, (_, session) => {
      const profile = profileFolder === undefined ? undefined : { folder: profileFolder, session };
      return openLane({ ...settings, profile }, model.name);
    }),
  );
  const lanes = opened.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
  const closeAll = async (): Promise<void> => {
    await Promise.all(lanes.map((lane) => lane.close()));
  };
  const refused = opened.find((result) => result.status === "rejected");
  const [first] = lanes;
  try {
    if (refused !== undefined || first === undefined) {
      throw refused?.reason ?? new Error("an engine needs at least one session");
    }
    await model.check();
  } catch (error) {
    await closeAll();
    throw error;
  }
  return {
    signature: first.signature,
    provider: providers[0] ?? "cpu",
    sessions: lanes.length,
    concurrency: lanes.length * batchesPerSession,
    run: (request) => leastBusy(first, lanes).run(request),
    [Symbol.asyncDispose]: closeAll,
  };
}

function leastBusy(first: Lane, lanes: readonly Lane[]): Lane {
  return lanes.reduce((best, lane) => (lane.waiting < best.waiting ? lane : best), first);
}

async function openLane(settings: WorkerSettings, name: string): Promise<Lane> {
  const worker = new Worker(new URL("./onnx-worker.js", import.meta.url), {
    workerData: settings,
    name: "onnxruntime",
  });
  const pending = new Map<number, Pending>();
  const ended = new Promise<void>((resolve) => {
    worker.once("exit", () => {
      resolve();
    });
  });
  let broken: Error | undefined;
  const signature = await listen(worker, pending, { path: settings.modelPath, name }, (error) => {
    broken = error;
  });
  let nextId = 0;
  return {
    signature,
    get waiting() {
      return pending.size;
    },
    run: (request) =>
      new Promise<EngineResponse>((resolve, reject) => {
        if (broken !== undefined) {
          reject(broken); // a thread that has ended would never answer
          return;
        }
        const id = nextId;
        nextId += 1;
        pending.set(id, { resolve, reject });
        const buffers = new Set(
          request.inputs.flatMap((input) => (input.dtype === "string" ? [] : [input.data.buffer])),
        );
        worker.postMessage({ kind: "run", id, ...request } satisfies ToWorker, [...buffers]);
      }),
    async close() {
      worker.postMessage({ kind: "close" } satisfies ToWorker);
      await ended;
    },
  };
}

/** Resolves with the model's signature once it is loaded; from then on answers go to `pending`. */
async function listen(
  worker: Worker,
  pending: Map<number, Pending>,
  model: Pick<ModelFile, "path" | "name">,
  onBroken: (error: Error) => void,
): Promise<ModelSignature> {
  return await new Promise((resolve, reject) => {
    const fail = (error: Error): void => {
      onBroken(error);
      reject(error);
      for (const call of pending.values()) {
        call.reject(error);
      }
      pending.clear();
    };
    worker.on("error", (cause) => {
      fail(new Error("the inference thread broke", { cause }));
    });
    worker.once("exit", () => {
      fail(new Error("the inference thread ended early"));
    });
    worker.on("messageerror", (cause) => {
      fail(new Error("an answer of the inference thread did not arrive whole", { cause }));
    });
    worker.on("message", (message: FromWorker) => {
      if (message.kind === "ready") {
        resolve(message.signature);
      } else if (message.kind === "refused") {
        reject(refusedModel(model, message.message));
      } else {
        const { id, ...response } = message;
        pending.get(id)?.resolve(response);
        pending.delete(id);
      }
    });
  });
}

function refusedModel({ path, name }: Pick<ModelFile, "path" | "name">, message: string): JobError {
  // "Load model from x.onnx failed:Protobuf parsing failed."
  const found = message.replace(`Load model from ${path} failed:`, "").replaceAll(path, name);
  return new JobError("MODEL_INVALID", `loading model ${name}: ${found}`, {
    hint: "check it with Python: onnxruntime.InferenceSession(path)",
  });
}
