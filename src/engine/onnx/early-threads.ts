import { Worker } from "node:worker_threads";
import { notifyServer } from "../../util/rpc/client.js";
import { untilExit } from "../../util/worker-port.js";
import { sessionProtocol } from "./protocol.js";

/** Threads that have loaded ONNX Runtime, or are about to, and wait to be told of a model. */
export interface EarlyThreads extends AsyncDisposable {
  /** How many still wait. */
  readonly count: number;
  /** One of them, else a new one; it is the caller's from now on. */
  take(): Worker;
}

/** More are seldom asked for at once. */
const mostThreads = 4;

/**
 * Starts threads before it is known what they will be for, on the cores that this thread leaves: loading takes a while.
 * Until one is taken it keeps no process from ending.
 * @param entry the file that they run
 */
export function startEarlyThreads(entry: URL, cores: number): EarlyThreads {
  const count = Math.min(Math.max(1, cores - 1), mostThreads);
  const waiting = new Map(
    Array.from({ length: count }, () => {
      const worker = startThread(entry);
      worker.unref();
      return [worker, untilExit(worker)];
    }),
  );
  for (const [worker, end] of waiting) {
    void end.then(() => waiting.delete(worker)); // whoever starts another one is told why it cannot
  }
  return {
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
        notifyServer(worker, sessionProtocol, "close", { body: undefined });
      }
      await Promise.all(waiting.values());
    },
  };
}

/** Starts a thread that has loaded ONNX Runtime soon. @param entry the file that it runs */
export function startThread(entry: URL): Worker {
  // Read by the native library when it loads: a scoring job sends nothing anywhere that its spec does not name.
  process.env["ORT_DISABLE_TELEMETRY"] = "1";
  return new Worker(entry, { name: "onnxruntime" });
}
