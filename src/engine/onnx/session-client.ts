import { getSystemErrorName } from "node:util";
import type { MessagePort } from "node:worker_threads";
import { type ModelSignature, numericBuffers } from "../../columnar/tensor.js";
import { JobError } from "../../util/errors.js";
import { openRpcClient, untilExit, type WorkerPort } from "../../util/rpc.js";
import { openingFault, ProviderFault, runningFault, shortFault } from "../devices/device-faults.js";
import { sessionProtocol, type SessionResponse, type WorkerSettings } from "./protocol.js";
import type { EngineRequest, EngineResponse, Operators, TreesState } from "../port.js";
import { refusedTokenizer } from "../tokens/tokenizer.js";
import { refusalOf, withoutSource } from "./runtime-text.js";

/** A session in a worker of its own. */
export interface SessionClient {
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

export interface ClientOptions {
  /** The model as messages name it. */
  readonly name: string;
  /** Called when the session has compiled its trees, or has found why it will not. */
  readonly onTrees: (state: TreesState) => void;
}

/**
 * Loads the model in a thread that waits for one. `worker`: the thread, or a port that it serves sessions on.
 * @throws ProviderFault, JobError MODEL_INVALID, MEMORY
 */
export async function openSessionClient(
  worker: WorkerPort,
  settings: WorkerSettings,
  { name, onTrees }: ClientOptions,
): Promise<SessionClient> {
  const ended = untilExit(worker);
  const client = openRpcClient(worker, sessionProtocol, {
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
