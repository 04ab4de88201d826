/**
 * Runs in a worker thread, since `session.run` blocks the thread it is called on. One session a worker, one
 * batch at a time; it stops only between batches: Node aborts the whole process when a thread is torn down
 * inside a run.
 */
import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import { env, InferenceSession, Tensor as OrtTensor } from "onnxruntime-node";
import type { Tensor } from "../../columnar/tensor.js";
import { messageOf } from "../../util/errors.js";
import type { FromWorker, ToWorker, WorkerSettings } from "./protocol.js";
import { onnxOptions, type OnnxSession, openSession } from "./session.js";
import type { EngineRequest } from "../port.js";

const port = parentPort;
if (port === null) {
  throw new Error("onnx-worker runs in a worker thread only");
}

// Node 24 has Float16Array, and onnxruntime-common makes one of the bits that it is given; but Node-API, by which they
// go on, knows of no such arrays, and takes them for empty. Without it they stay what they are, in this thread.
Reflect.deleteProperty(globalThis, "Float16Array");

/** What a thread hosts beside its session. */
interface Guest {
  serve(line: MessagePort, run: (request: EngineRequest) => ReturnType<typeof timedRun>): void;
}

async function timedRun(session: OnnxSession, request: EngineRequest): Promise<{ outputs: Tensor[]; ms: number }> {
  const started = process.hrtime.bigint(); // a thread would load modules for `performance`
  const outputs = await session.run(request);
  return { outputs, ms: Number(process.hrtime.bigint() - started) / 1e6 };
}

function send(message: FromWorker, transfer: readonly ArrayBuffer[] = []): void {
  port?.postMessage(message, [...transfer]);
}

function buffersOf(tensors: readonly Tensor[]): ArrayBuffer[] {
  return [...new Set(tensors.flatMap((tensor) => (tensor.dtype === "string" ? [] : [tensor.data.buffer])))];
}

async function handle(session: OnnxSession, message: Exclude<ToWorker, { kind: "open" }>): Promise<void> {
  if (message.kind === "close") {
    await session.close();
    port?.close();
    return;
  }
  if (message.kind === "host") {
    const guest = (await import(message.module)) as Guest;
    guest.serve(message.line, (request) => timedRun(session, request));
    return;
  }
  const { id, inputs } = message;
  const buffers = buffersOf(inputs);
  try {
    const { outputs, ms } = await timedRun(session, message);
    // Texts have no buffers worth sending back.
    const reusable = inputs.filter(({ dtype }) => dtype !== "string");
    send({ kind: "done", id, outputs, ms, inputs: reusable }, [...buffers, ...buffersOf(outputs)]);
  } catch (error) {
    send({ kind: "failed", id, message: messageOf(error), inputs }, buffers);
  }
}

async function open(settings: WorkerSettings): Promise<OnnxSession | undefined> {
  try {
    const session = await openSession({ InferenceSession, Tensor: OrtTensor }, settings);
    send({ kind: "ready", signature: session.signature });
    return session;
  } catch (error) {
    send({ kind: "refused", message: messageOf(error) });
    port?.close();
    return undefined;
  }
}

let opened: OnnxSession | undefined;

async function answer(message: ToWorker): Promise<void> {
  if (message.kind === "open") {
    opened = await open(message.settings);
  } else if (opened !== undefined) {
    await handle(opened, message);
  } else if (message.kind === "close") {
    port?.close(); // it was never told of a model
  }
}

let queue = Promise.resolve();
port.on("messageerror", (cause) => {
  throw new Error("a batch did not arrive whole", { cause }); // ends the thread, which is told
});
port.on("message", (message: ToWorker) => {
  queue = queue.then(() => answer(message));
});
// What will be hosted is loaded while there is nothing else to do,
for (const module of workerData as readonly string[]) {
  void import(module);
}
// and what ONNX Runtime makes once for all sessions, beside the first one: here of one node, y = Identity(x).
env.logLevel = "fatal"; // what is missing of a provider is told by us
const smallestModel = "CAgSADo3ChAKAXgSAXkiCElkZW50aXR5EgFnWg8KAXgSCgoICAESBAoCCAFiDwoBeRIKCggIARIECgIIAUIECgAQEQ==";

async function openOne(): Promise<void> {
  const bytes = Uint8Array.from(atob(smallestModel), (letter) => letter.charCodeAt(0));
  const session = await InferenceSession.create(bytes, onnxOptions);
  await session.release();
}

openOne().catch(() => undefined); // what is wrong will be told of the model that is asked for
