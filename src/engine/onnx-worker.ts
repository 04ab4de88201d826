/**
 * Runs in a worker thread, since `session.run` blocks the thread it is called on. One session a worker, one
 * batch at a time; it stops only between batches: Node aborts the whole process when a thread is torn down
 * inside a run.
 */
import { parentPort, workerData } from "node:worker_threads";
import { InferenceSession, Tensor as OrtTensor } from "onnxruntime-node";
import type { ModelSignature, Tensor, TensorSignature, Values } from "../batch/types.js";
import { isColumnType } from "../batch/types.js";
import { messageOf } from "../errors.js";
import type { FromWorker, ToWorker, WorkerSettings } from "./onnx-protocol.js";
import type { EngineRequest, NamedTensor } from "./port.js";

const port = parentPort;
if (port === null) {
  throw new Error("onnx-worker runs in a worker thread only");
}

const settings = workerData as WorkerSettings;

/** Warnings of ONNX Runtime go to stderr line by line, one a batch for some exporters' models. */
const errorsOnly = 3;

async function load(): Promise<InferenceSession> {
  return await InferenceSession.create(settings.modelPath, {
    executionProviders: [...settings.providers],
    intraOpNumThreads: settings.intraOpThreads,
    interOpNumThreads: 1,
    executionMode: "sequential",
    graphOptimizationLevel: "all",
    logSeverityLevel: errorsOnly,
    // Spinning threads take the cores that decode the next batch.
    extra: { session: { intra_op: { allow_spinning: "0" } } },
  });
}

function describe(metadata: InferenceSession["inputMetadata"]): TensorSignature[] {
  return metadata.map((value) =>
    value.isTensor
      ? {
          name: value.name,
          dtype: value.type,
          shape: value.shape.map((dim) => (typeof dim === "number" && dim > 0 ? dim : null)),
        }
      : { name: value.name, dtype: undefined, shape: [] },
  );
}

function signatureOf(session: InferenceSession): ModelSignature {
  return { inputs: describe(session.inputMetadata), outputs: describe(session.outputMetadata) };
}

function toOrt(tensor: NamedTensor): OrtTensor {
  return new OrtTensor(tensor.dtype, tensor.data as Float32Array, tensor.dims);
}

async function runBatch(session: InferenceSession, request: EngineRequest): Promise<Tensor[]> {
  const feeds: Record<string, OrtTensor> = {};
  for (const input of request.inputs) {
    feeds[input.name] = toOrt(input);
  }
  const results = await session.run(feeds, [...request.outputs]);
  return request.outputs.map((name) => {
    const result = results[name];
    if (result === undefined || !isColumnType(result.type)) {
      throw new Error(`output ${name} came as ${result?.type ?? "nothing"}`);
    }
    return { dtype: result.type, dims: [...result.dims], data: result.data as Values };
  });
}

function send(message: FromWorker, transfer: readonly ArrayBuffer[] = []): void {
  port?.postMessage(message, [...transfer]);
}

function buffersOf(tensors: readonly Tensor[]): ArrayBuffer[] {
  return [...new Set(tensors.map((tensor) => tensor.data.buffer))];
}

async function handle(session: InferenceSession, message: ToWorker): Promise<void> {
  if (message.kind === "close") {
    await session.release();
    port?.close();
    return;
  }
  const buffers = buffersOf(message.inputs);
  try {
    const outputs = await runBatch(session, message);
    send({ kind: "done", id: message.id, outputs, buffers }, [...buffers, ...buffersOf(outputs)]);
  } catch (error) {
    send({ kind: "failed", id: message.id, message: messageOf(error), buffers }, buffers);
  }
}

try {
  const session = await load();
  let queue = Promise.resolve();
  port.on("message", (message: ToWorker) => {
    queue = queue.then(() => handle(session, message));
  });
  send({ kind: "ready", signature: signatureOf(session) });
} catch (error) {
  send({ kind: "refused", message: messageOf(error) });
  port.close();
}
