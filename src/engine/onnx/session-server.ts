import { readFile } from "node:fs/promises";
import type { MessagePort } from "node:worker_threads";
import type * as OnnxRuntime from "onnxruntime-node";
import { type ModelSignature, numericBuffers } from "../../columnar/tensor.js";
import { messageOf } from "../../util/errors.js";
import { createLimit } from "../../util/limit.js";
import type { Sent } from "../../util/rpc/protocol.js";
import { serveRpc } from "../../util/rpc/server.js";
import { openTreeSession, type TreeSession } from "../trees/session.js";
import { type Opened, sessionProtocol, type SessionResponse, type WorkerSettings } from "./protocol.js";
import { openPlaced } from "./placement.js";
import { openSession, type Runtime } from "./session.js";
import { openSmallestModel } from "./smallest-model.js";
import { withTokens } from "../tokens/run-tokens.js";
import { type Encode, loadTokenizer, TokenizerError, type TokenizerPlace } from "../tokens/tokenizer.js";
import type { EngineRequest, Operators, RunModel, TreesState } from "../port.js";
import { settled } from "../../util/promises.js";

export interface SessionServerOptions {
  /** ONNX Runtime: given, so that what is bundled with this loads no native library. */
  readonly runtime: Runtime & Pick<typeof OnnxRuntime, "env">;
  /** Reads and scores units for the other end of `port`. */
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
  const server = serveRpc(port, sessionProtocol, {
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

/** Why a session cannot be opened. */
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

/** A session, with its trees compiled where it has some. */
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

/** Loads tokenizers, by their digests. */
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
