import { getSystemErrorName } from "node:util";
import type { MessagePort, Worker } from "node:worker_threads";
import type { ModelSignature } from "../../columnar/tensor.js";
import { JobError } from "../../util/errors.js";
import { brokenThread } from "../../util/worker-port.js";
import { openingFault, ProviderFault, runningFault, shortFault } from "../devices/device-faults.js";
import type { FromWorker, ToWorker, WorkerSettings } from "./protocol.js";
import type { EngineRequest, EngineResponse } from "../port.js";
import { refusalOf, withoutSource } from "./runtime-text.js";

interface Pending {
  resolve(response: EngineResponse): void;
  reject(error: Error): void;
}

/** A session in a worker of its own. */
export interface SessionClient {
  readonly signature: ModelSignature;
  readonly waiting: number;
  run(request: EngineRequest): Promise<EngineResponse>;
  /** Has the worker read and score units, see `Engine.unitPorts`. */
  serveUnits(port: MessagePort): void;
  /** Answers what it was asked before. */
  close(): Promise<void>;
}

/**
 * Loads the model in a thread that waits for one.
 * @throws ProviderFault, JobError MODEL_INVALID, MEMORY
 */
export async function openSessionClient(
  worker: Worker,
  settings: WorkerSettings,
  name: string,
): Promise<SessionClient> {
  const pending = new Map<number, Pending>();
  const ended = new Promise<void>((resolve) => {
    worker.once("exit", () => {
      resolve();
    });
  });
  let broken: Error | undefined;
  worker.postMessage({ kind: "open", settings } satisfies ToWorker);
  const signature = await listen(worker, pending, { settings, name }, (error) => {
    broken ??= error; // a thread that broke ends, too
  });
  let nextId = 0;
  return {
    signature,
    get waiting() {
      return broken === undefined ? pending.size : Number.POSITIVE_INFINITY; // it would never answer
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
    serveUnits(port) {
      if (broken !== undefined) {
        port.close(); // a thread that has ended would never answer
        return;
      }
      worker.postMessage({ kind: "units", port } satisfies ToWorker, [port]);
    },
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
  model: LoadedModel,
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
      fail(brokenThread(`scoring with ${model.name}`, cause));
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
        const call = pending.get(id);
        pending.delete(id);
        const fault = response.kind === "failed" ? runningFault(response.message) : undefined;
        if (response.kind !== "failed") {
          call?.resolve(response);
        } else if (fault === undefined) {
          call?.resolve({ ...response, message: withoutSource(response.message) });
        } else if (fault.kind === "memory") {
          call?.resolve({ ...response, kind: "exhausted" });
        } else {
          call?.reject(brokenDevice(model, response.message));
        }
      }
    });
  });
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
      hint: "something else may hold its memory: nvidia-smi lists who; run the same command again",
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

/** What a device does when it fails says nothing about rows: none of them is set aside for it. */
function brokenDevice({ settings: { device }, name }: LoadedModel, message: string): JobError {
  return new JobError("DEVICE", `scoring with ${name} on ${device}: ${shortFault(message)}`, {
    hint: "run the same command again; when it fails again, `infer-batch doctor` and the kernel's log (dmesg) tell more",
  });
}
