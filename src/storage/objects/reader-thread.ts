import { setMaxListeners } from "node:events";
import { Worker } from "node:worker_threads";
import type { ListedObject } from "../../objects/protocol.js";
import type { StorePlace } from "../../objects/open.js";
import type { RequestOptions } from "../../objects/requests.js";
import { notifyServer, openRpcClient, type RpcCall, untilExit } from "../../util/rpc.js";
import { type ObjectReader, readerProtocol, type ReaderSettings } from "./reader.js";

/** How long a thread may take to end by itself. */
const endTimeoutMs = 1000;
/** The `threadId` of a worker that has ended. */
const endedThreadId = -1;

/** Starts a worker thread that reads from a store. It starts at once, because its code takes a while to load. */
export function openReaderThread(place: StorePlace, { timeouts, retry, signal }: RequestOptions): ObjectReader {
  const settings: ReaderSettings = { place, timeouts, retrySeconds: retry.maxSeconds };
  const worker = new Worker(new URL("./reader-worker.js", import.meta.url), { workerData: settings, name: "reader" });
  const client = openRpcClient(worker, readerProtocol, {
    doing: "reading from the store",
    onNotice: {
      warning(message) {
        retry.warn(message);
      },
    },
  });
  const stop = (): void => {
    client.notify("stop", { body: undefined });
  };
  signal.addEventListener("abort", stop, { once: true });
  const throwIfStopped = (callSignal?: AbortSignal): void => {
    signal.throwIfAborted();
    callSignal?.throwIfAborted();
  };
  return {
    async *list(bucket, prefix, listOptions = {}) {
      throwIfStopped();
      const listed: ListedObject[] = [];
      const call = client.call("list", { body: { bucket, prefix, options: listOptions } }, (objects) => {
        listed.push(...objects);
      });
      await resultOf(call, signal);
      yield* listed;
    },
    async stat(object) {
      throwIfStopped();
      return await resultOf(client.call("stat", { body: object }), signal);
    },
    async fetchIntoFile(act, request, fd, callSignal) {
      throwIfStopped(callSignal);
      await resultOf(client.call("fetchIntoFile", { body: { act, request, fd } }), signal, callSignal);
    },
    async readBytes(act, request, callSignal) {
      throwIfStopped(callSignal);
      return await resultOf(client.call("readBytes", { body: { act, request } }), signal, callSignal);
    },
    async [Symbol.asyncDispose]() {
      signal.removeEventListener("abort", stop);
      stop();
      await endWorker(worker);
    },
  };
}

/** Lets the thread end by itself, so that its code cache is saved; terminates it when that takes too long. */
async function endWorker(worker: Worker): Promise<void> {
  if (worker.threadId === endedThreadId) {
    return;
  }
  const ended = untilExit(worker);
  notifyServer(worker, readerProtocol, "end", { body: undefined });
  const timeout = setTimeout(() => void worker.terminate(), endTimeoutMs);
  await ended;
  clearTimeout(timeout);
}

/** Waits for a call's result. A cancelled call settles only when the thread no longer uses its file. */
async function resultOf<T>({ result, cancel }: RpcCall<T>, job: AbortSignal, callSignal?: AbortSignal): Promise<T> {
  if (callSignal !== undefined) {
    setMaxListeners(0, callSignal); // else Node warns of a leak when many calls are open
    callSignal.addEventListener("abort", cancel, { once: true });
  }
  try {
    return await result;
  } catch (error) {
    job.throwIfAborted();
    callSignal?.throwIfAborted();
    throw error;
  } finally {
    callSignal?.removeEventListener("abort", cancel);
  }
}
