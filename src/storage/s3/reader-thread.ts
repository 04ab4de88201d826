import { setMaxListeners } from "node:events";
import { Worker } from "node:worker_threads";
import type { S3Options } from "../../s3/attempts.js";
import type { ListedObject } from "../../s3/listing.js";
import { untilExit } from "../../util/worker-port.js";
import { notifyServer, openRpcClient, type RpcCall } from "../../util/rpc/client.js";
import { readerProtocol, type ReaderSettings } from "./reader-protocol.js";
import type { S3Reader } from "./reader.js";

const patienceMs = 1000;
/** The number of a thread that has ended. */
const gone = -1;

/** Reads in a thread of its own, which is started now: the SDK takes a while to load. */
export function openReaderThread(options: S3Options): S3Reader {
  const { place, timeouts, retry, signal } = options;
  const settings: ReaderSettings = { place, timeouts, retrySeconds: retry.maxSeconds };
  const worker = new Worker(new URL("./s3-worker.js", import.meta.url), { workerData: settings, name: "s3" });
  const client = openRpcClient(worker, readerProtocol, {
    doing: "reading from S3",
    hear: {
      warning(message) {
        retry.warn(message);
      },
    },
  });
  const stop = (): void => {
    client.notify("stop", { body: undefined });
  };
  signal.addEventListener("abort", stop, { once: true });
  const throwIfStopped = (own?: AbortSignal): void => {
    signal.throwIfAborted();
    own?.throwIfAborted();
  };
  return {
    async *list(bucket, prefix, asked = {}) {
      throwIfStopped();
      const listed: ListedObject[] = [];
      const call = client.call("list", { body: { bucket, prefix, options: asked } }, (objects) => {
        listed.push(...objects);
      });
      await resultOf(call, signal);
      yield* listed;
    },
    async look(object) {
      throwIfStopped();
      return await resultOf(client.call("look", { body: object }), signal);
    },
    async fetch(doing, request, fd, own) {
      throwIfStopped(own);
      await resultOf(client.call("fetch", { body: { doing, request, fd } }), signal, own);
    },
    async bytes(doing, request, own) {
      throwIfStopped(own);
      return await resultOf(client.call("bytes", { body: { doing, request } }), signal, own);
    },
    async [Symbol.asyncDispose]() {
      signal.removeEventListener("abort", stop);
      stop();
      await end(worker);
    },
  };
}

/** It ends by itself, so that what it compiled is kept, unless something holds it up. */
async function end(worker: Worker): Promise<void> {
  if (worker.threadId === gone) {
    return;
  }
  const ended = untilExit(worker);
  notifyServer(worker, readerProtocol, "end", { body: undefined });
  const late = setTimeout(() => void worker.terminate(), patienceMs);
  await ended;
  clearTimeout(late);
}

/** A call's result. A call that is cancelled is settled when the thread has let go of it, and not before. */
async function resultOf<T>({ result, cancel }: RpcCall<T>, job: AbortSignal, own?: AbortSignal): Promise<T> {
  if (own !== undefined) {
    setMaxListeners(0, own); // many calls at once are no leak, of which Node would warn the user
    own.addEventListener("abort", cancel, { once: true });
  }
  try {
    return await result;
  } catch (error) {
    job.throwIfAborted();
    own?.throwIfAborted();
    throw error;
  } finally {
    own?.removeEventListener("abort", cancel);
  }
}
