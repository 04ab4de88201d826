import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { MessagePort } from "node:worker_threads";
import { type ModelSignature, blankBatch, numericBuffers, tensorOutputs } from "../../columns/tensor.js";
import type { Provider } from "../../job/jobfile/engine-spec.js";
import { messageOf } from "../../base/errors.js";
import { createLimit, settled } from "../../base/promises.js";
import { type Sent, serveRpc } from "../../base/rpc.js";
import type { EngineRequest, Operators, RunModel, TreesState } from "../engine.js";
import { type Encode, TokenizerError, type TokenizerPlace, loadTokenizer, withTokens } from "../tokens.js";
import { type TreeSession, openTreeSession } from "../trees/session.js";
import { type Opened, type SessionProtocol, type SessionResponse, type WorkerSettings } from "./protocol.js";
import { type OnnxSession, type Runtime, openSession, openSmallestModel } from "./session.js";
import type * as OnnxRuntime from "onnxruntime-node";

interface SessionServerOptions {
  /** ONNX Runtime: given, so that what is bundled with this loads no native library. */
  readonly runtime: Runtime & Pick<typeof OnnxRuntime, "env">;
  readonly serveUnits: (port: MessagePort, models: { readonly run: RunModel }) => void;
}

/**
 * Serves one session in a worker thread, since `session.run` blocks the thread it is called on: one batch at a time. It
 * stops only between batches: Node aborts the whole process when a thread is torn down inside a run.
 */
export function serveSession(port: MessagePort, options: SessionServerOptions): void {
  const { runtime, serveUnits } = options;
  runtime.env.logLevel = "fatal"; // this program reports the missing parts of a provider
  // ONNX Runtime makes things once for all sessions: before the model is known. An error is reported with the model.
  void settled(openSmallestModel(runtime));
  let opened: ServedSession | undefined;
  const inTurn = createLimit(1);
  const server = serveRpc<SessionProtocol>(port, {
    calls: {
      open: (settings) =>
        inTurn(async (): Promise<Sent<Opened>> => {
          try {
            await opened?.close();
            opened = undefined;
            opened = await openServed(runtime, settings, (state) => server.notify("trees", { body: state }));
            return { body: { kind: "ready", signature: opened.signature, operators: opened.operators } };
          } catch (error) {
            return { body: refused(error) };
          }
        }),
      run: (request) => inTurn(() => runBatch(requireOpen(opened), request)),
      expect: ({ rows, rowMs }) =>
        inTurn(async () => {
          await requireOpen(opened).expect(rows, rowMs);
          return { body: undefined };
        }),
    },
    onNotice: {
      units(end) {
        void inTurn(() => {
          const { run } = requireOpen(opened);
          serveUnits(end, { run });
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
}

function refused(error: unknown): Opened {
  const tokenizer = error instanceof TokenizerError ? error.uri : undefined;
  return { kind: "refused", message: messageOf(error), tokenizer };
}

function requireOpen<T>(session: T | undefined): T {
  if (session === undefined) {
    throw new Error("a session is used before it is open");
  }
  return session;
}

type ServedSession = Pick<TreeSession, "expect" | "close"> & {
  readonly signature: ModelSignature;
  readonly operators: Operators;
  readonly run: RunModel;
};

async function openServed(
  runtime: Runtime,
  settings: WorkerSettings,
  onState: (state: TreesState) => void,
): Promise<ServedSession> {
  const { modelPath, trees } = settings;
  const startedMs = nowMs();
  const { session: base, operators } = await openPlaced(runtime, settings);
  const encoders = await loadTokenizers(settings.tokenizers);
  const openedMs = nowMs() - startedMs;
  const { signature } = base;
  if (trees === undefined) {
    const run: RunModel = async (request) => {
      const beganMs = nowMs();
      const outputs = await base.run(request);
      return { outputs, ms: nowMs() - beganMs };
    };
    const tokenized = encoders.size === 0 ? run : withTokens(run, encoders, nowMs);
    return { signature, operators, run: tokenized, expect: () => Promise.resolve(), close: () => base.close() };
  }
  const session = openTreeSession({
    base,
    openedMs,
    ...trees,
    readModel: () => readFile(modelPath),
    openPart(part, { inputs, outputs }) {
      const texts = {
        inputs: settings.texts.inputs.filter((name) => inputs.includes(name)),
        outputs: settings.texts.outputs.filter((name) => outputs.includes(name)),
      };
      return openSession(runtime, { ...settings, texts, intraOpThreads: 1, profile: undefined }, part);
    },
    onState,
    nowMs,
  });
  return {
    ...session,
    signature,
    operators,
    async run(request) {
      const done = await session.run(request);
      await session.settle();
      return done;
    },
  };
}

async function loadTokenizers(places: readonly TokenizerPlace[]): Promise<ReadonlyMap<string, Encode>> {
  return new Map(await Promise.all(places.map(async (place) => [place.sha256, await loadTokenizer(place)] as const)));
}

/** Milliseconds of a clock that needs no module: a thread would load some for `performance`. */
function nowMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

async function runBatch(session: ServedSession, request: EngineRequest): Promise<Sent<SessionResponse>> {
  const { inputs } = request;
  const buffers = numericBuffers(inputs);
  try {
    const { outputs, ms, byTrees } = await session.run(request);
    // Texts have no buffers to reuse.
    const reusable = inputs.filter(({ dtype }) => dtype !== "string");
    const transfer = [...new Set([...buffers, ...numericBuffers(outputs)])];
    return { body: { kind: "done", outputs, ms, byTrees, inputs: reusable }, transfer };
  } catch (error) {
    return { body: { kind: "failed", message: messageOf(error), inputs }, transfer: [...new Set(buffers)] };
  }
}

/** Providers that leave operators to the CPU without saying so. CUDA and TensorRT do, too: `doctor` counts theirs. */
const placing: ReadonlySet<Provider> = new Set(["webgpu", "coreml", "dml"]);
/** core/session/inference_session.cc, where `disable_cpu_ep_fallback` is set. */
const leftToCpu = /fallback to CPU EP has been explicitly disabled/;
/** core/providers/webgpu: found when the first batch is computed, not when the session is opened. */
const unsupportedType = /requires \w+ but the device does not support it/;

/** Rejects with what ONNX Runtime says, also if the device lacks a type that the model uses. */
async function openPlaced(
  runtime: Runtime,
  settings: WorkerSettings,
): Promise<{ readonly session: OnnxSession; readonly operators: Operators }> {
  const { modelPath, providers, profile } = settings;
  if (!placing.has(providers[0] ?? "cpu")) {
    return { session: await openSession(runtime, settings, modelPath), operators: undefined };
  }
  try {
    const session = await openSession(runtime, { ...settings, wholeModel: true }, modelPath);
    await (profile === undefined ? refuseUnsupported(session) : undefined);
    return { session, operators: undefined };
  } catch (error) {
    if (!leftToCpu.test(messageOf(error))) {
      throw error;
    }
  }
  const operators = await countOperators(runtime, settings);
  return { session: await openSession(runtime, settings, modelPath), operators };
}

/** Runs a blank batch. A model may refuse blank rows and still score others: only a missing type is an error. */
async function refuseUnsupported(session: OnnxSession): Promise<void> {
  const { signature } = session;
  try {
    await session.run({ inputs: blankBatch(signature), outputs: tensorOutputs(signature) });
  } catch (error) {
    if (unsupportedType.test(messageOf(error))) {
      await session.close();
      throw error;
    }
  }
}

async function countOperators(runtime: Runtime, settings: WorkerSettings): Promise<Operators> {
  const { operatorsByProvider } = await import("./operators.js");
  const folder = await mkdtemp(join(tmpdir(), "infer-batch-operators-"));
  try {
    const session = await openSession(runtime, { ...settings, profile: { folder, session: 0 } }, settings.modelPath);
    await refuseUnsupported(session);
    await session.close(); // writes the profile
    const operators = await operatorsByProvider(folder);
    return Object.keys(operators).length === 0 ? undefined : operators; // a model that refuses blank rows tells nothing
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
