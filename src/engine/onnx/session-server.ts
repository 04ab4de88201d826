import type { MessagePort } from "node:worker_threads";
import type * as OnnxRuntime from "onnxruntime-node";
import type { Tensor } from "../../columnar/tensor.js";
import { messageOf } from "../../util/errors.js";
import type { FromWorker, ToWorker, WorkerSettings } from "./protocol.js";
import { onnxOptions, type OnnxSession, openSession, type Runtime } from "./session.js";
import type { EngineRequest } from "../port.js";

/** Runs the model on tensors that stay their owner's. Rejects where the model fails. */
type RunSession = (request: EngineRequest) => Promise<{ outputs: Tensor[]; ms: number }>;

export interface SessionServerOptions {
  /** ONNX Runtime: given, so that what is bundled with this loads no native library. */
  readonly runtime: Runtime & Pick<typeof OnnxRuntime, "env">;
  /** Reads and scores units for whoever has the other end of `port`. */
  readonly serveUnits: (port: MessagePort, run: RunSession) => void;
}

/**
 * Serves one session in a worker thread, since `session.run` blocks the thread it is called on: one batch at a time. It
 * stops only between batches: Node aborts the whole process when a thread is torn down inside a run.
 */
export function serveSession(port: MessagePort, { runtime, serveUnits }: SessionServerOptions): void {
  let opened: OnnxSession | undefined;
  const send = (message: FromWorker, transfer: readonly ArrayBuffer[] = []): void => {
    port.postMessage(message, [...transfer]);
  };
  const open = async (settings: WorkerSettings): Promise<void> => {
    try {
      opened = await openSession(runtime, settings);
      send({ kind: "ready", signature: opened.signature });
    } catch (error) {
      send({ kind: "refused", message: messageOf(error) });
      port.close();
    }
  };
  const answer = async (message: ToWorker): Promise<void> => {
    if (message.kind === "open") {
      await open(message.settings);
    } else if (message.kind === "close") {
      await opened?.close(); // undefined: it was never told of a model
      port.close();
    } else if (message.kind === "units") {
      const session = opened;
      if (session !== undefined) {
        serveUnits(message.port, (request) => timedRun(session, request));
      }
    } else if (opened !== undefined) {
      await runBatch(opened, message, send);
    }
  };
  let queue = Promise.resolve();
  port.on("messageerror", (cause) => {
    throw new Error("a batch did not arrive whole", { cause }); // ends the thread, which is told
  });
  port.on("message", (message: ToWorker) => {
    queue = queue.then(() => answer(message));
  });
  runtime.env.logLevel = "fatal"; // what is missing of a provider is told by us
  openSmallest(runtime).catch(() => undefined); // what is wrong will be told of the model that is asked for
}

async function timedRun(session: OnnxSession, request: EngineRequest): Promise<{ outputs: Tensor[]; ms: number }> {
  const started = process.hrtime.bigint(); // a thread would load modules for `performance`
  const outputs = await session.run(request);
  return { outputs, ms: Number(process.hrtime.bigint() - started) / 1e6 };
}

async function runBatch(
  session: OnnxSession,
  message: Extract<ToWorker, { kind: "run" }>,
  send: (message: FromWorker, transfer: readonly ArrayBuffer[]) => void,
): Promise<void> {
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

function buffersOf(tensors: readonly Tensor[]): ArrayBuffer[] {
  return [...new Set(tensors.flatMap((tensor) => (tensor.dtype === "string" ? [] : [tensor.data.buffer])))];
}

/** A model of one node, y = Identity(x). */
const smallestModel = "CAgSADo3ChAKAXgSAXkiCElkZW50aXR5EgFnWg8KAXgSCgoICAESBAoCCAFiDwoBeRIKCggIARIECgIIAUIECgAQEQ==";

/** What ONNX Runtime makes once for all sessions is made before the model is known. */
async function openSmallest({ InferenceSession }: Runtime): Promise<void> {
  const bytes = Uint8Array.from(atob(smallestModel), (letter) => letter.charCodeAt(0));
  const session = await InferenceSession.create(bytes, onnxOptions);
  await session.release();
}
