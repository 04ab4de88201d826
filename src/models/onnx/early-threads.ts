import { Worker } from "node:worker_threads";
import { notifyServer, untilExit } from "../../base/rpc.js";
import type { SessionProtocol } from "./protocol.js";

/** Threads that load ONNX Runtime and then wait for a model. */
export interface EarlyThreads extends AsyncDisposable {
  /** Starts them, the first time that it is called. */
  start(): void;
  /** How many threads are still waiting. */
  readonly count: number;
  /** Hands over a waiting thread, else a new one. The caller owns it from now on. */
  take(): Worker;
}

/** More threads are rarely needed at once. */
const mostThreads = 4;

/**
 * Threads that start before the model is known, one for each other core, since loading takes a while. An unused thread
 * does not keep the process alive.
 * @param entry the file that the threads run
 */
export function earlyThreads(entry: URL, cores: number): EarlyThreads {
  const waiting = new Map<Worker, Promise<unknown>>();
  let count = Math.min(Math.max(1, cores - 1), mostThreads);
  return {
    start() {
      for (; count > 0; count--) {
        const worker = startThread(entry);
        worker.unref();
        const end = untilExit(worker);
        waiting.set(worker, end);
        void end.then(() => waiting.delete(worker)); // starting another one reports why
      }
    },
    get count() {
      return waiting.size;
    },
    take() {
      const [worker] = waiting.keys();
      if (worker === undefined) {
        return startThread(entry);
      }
      waiting.delete(worker);
      worker.ref();
      return worker;
    },
    async [Symbol.asyncDispose]() {
      // Not `terminate`: Node aborts the process when a thread is torn down that is loading a native library.
      for (const worker of waiting.keys()) {
        worker.ref();
        notifyServer<SessionProtocol>(worker, "close");
      }
      await Promise.all(waiting.values());
    },
  };
}

/** Starts a thread that loads ONNX Runtime. @param entry the file that it runs */
export function startThread(entry: URL): Worker {
  // The native library reads this when it loads. A scoring job sends nothing to places that its spec does not name.
  process.env["ORT_DISABLE_TELEMETRY"] = "1";
  // Each session's tokenizer has one thread, as the session has.
  process.env["TOKENIZERS_PARALLELISM"] ??= "false";
  return new Worker(entry, { name: "onnxruntime" });
}
