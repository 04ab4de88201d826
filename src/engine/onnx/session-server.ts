import type { MessagePort } from "node:worker_threads";
import type * as OnnxRuntime from "onnxruntime-node";
import { numericBuffers, type Tensor } from "../../columnar/tensor.js";
import { messageOf } from "../../util/errors.js";
import { createLimit } from "../../util/limit.js";
import type { Sent } from "../../util/rpc/protocol.js";
import { serveRpc } from "../../util/rpc/server.js";
import { type Opened, sessionProtocol, type SessionResponse } from "./protocol.js";
import { onnxOptions, type OnnxSession, openSession, type Runtime } from "./session.js";
import type { EngineRequest, RunModel } from "../port.js";
import { settled } from "../../util/promises.js";

export interface SessionServerOptions {
  /** ONNX Runtime: given, so that what is bundled with this loads no native library. */
  readonly runtime: Runtime & Pick<typeof OnnxRuntime, "env">;
  /** Reads and scores units for whoever has the other end of `port`. */
  readonly serveUnits: (port: MessagePort, run: RunModel) => void;
}

/**
 * Serves one session in a worker thread, since `session.run` blocks the thread it is called on: one batch at a time. It
 * stops only between batches: Node aborts the whole process when a thread is torn down inside a run.
 */
export function serveSession(port: MessagePort, { runtime, serveUnits }: SessionServerOptions): void {
  let opened: OnnxSession | undefined;
  const inTurn = createLimit(1);
  serveRpc(port, sessionProtocol, {
    calls: {
      open: (settings) =>
        inTurn(async (): Promise<Sent<Opened>> => {
          try {
            opened = await openSession(runtime, settings);
            return { body: { kind: "ready", signature: opened.signature } };
          } catch (error) {
            return { body: { kind: "refused", message: messageOf(error) } };
          }
        }),
      run: (request) => inTurn(() => runBatch(requireOpen(opened), request)),
    },
    hear: {
      units(end) {
        void inTurn(() => {
          const session = requireOpen(opened);
          serveUnits(end, (request) => timedRun(session, request));
          return Promise.resolve();
        });
      },
      close() {
        void inTurn(async () => {
          await opened?.close(); // undefined: there never was a model for it
          setImmediate(() => {
            port.close(); // by now the answer to the call before is sent
          });
        });
      },
    },
  });
  runtime.env.logLevel = "fatal"; // what is missing of a provider is told by us
  void settled(openSmallest(runtime)); // what is wrong is told of the model that is asked for
}

function requireOpen(session: OnnxSession | undefined): OnnxSession {
  if (session === undefined) {
    throw new Error("a session is used before it is open");
  }
  return session;
}

async function timedRun(session: OnnxSession, request: EngineRequest): Promise<{ outputs: Tensor[]; ms: number }> {
  const started = process.hrtime.bigint(); // a thread would load modules for `performance`
  const outputs = await session.run(request);
  return { outputs, ms: Number(process.hrtime.bigint() - started) / 1e6 };
}

async function runBatch(session: OnnxSession, request: EngineRequest): Promise<Sent<SessionResponse>> {
  const { inputs } = request;
  const buffers = numericBuffers(inputs);
  try {
    const { outputs, ms } = await timedRun(session, request);
    // Texts have no buffers worth sending back.
    const reusable = inputs.filter(({ dtype }) => dtype !== "string");
    const transfer = [...new Set([...buffers, ...numericBuffers(outputs)])];
    return { body: { kind: "done", outputs, ms, inputs: reusable }, transfer };
  } catch (error) {
    return { body: { kind: "failed", message: messageOf(error), inputs }, transfer: [...new Set(buffers)] };
  }
}

/** A model of one node, y = Identity(x). */
const smallestModel = "CAgSADo3ChAKAXgSAXkiCElkZW50aXR5EgFnWg8KAXgSCgoICAESBAoCCAFiDwoBeRIKCggIARIECgIIAUIECgAQEQ==";

/** What ONNX Runtime makes once for all sessions is made before the model is known. */
async function openSmallest({ InferenceSession }: Runtime): Promise<void> {
  const bytes = Uint8Array.from(atob(smallestModel), (letter) => letter.charCodeAt(0));
  const session = await InferenceSession.create(bytes, onnxOptions);
  await session.release();
}
