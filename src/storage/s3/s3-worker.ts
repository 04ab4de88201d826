/**
 * Runs in a worker thread. What is fetched is written to the disk here, from the buffer that the socket filled: the main
 * thread, which is busy with rows, sees none of it. The SDK is loaded here, too.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { type ReaderSettings, readerProtocol } from "./reader-protocol.js";
import type { ListedObject } from "../../s3/listing.js";
import { readerOf } from "./reader.js";
import { openS3Store } from "../../s3/store.js";
import { type RpcContext, serveRpc } from "../../util/rpc/server.js";

const port = parentPort;
if (port === null) {
  throw new Error("s3-worker runs in a worker thread only");
}

const { place, timeouts, retrySeconds } = workerData as ReaderSettings;
/** Objects of a listing that are told together: a page has as many. */
const objectsAtOnce = 1000;

const job = new AbortController();
const reader = readerOf(
  openS3Store({
    place,
    timeouts,
    retry: {
      maxSeconds: retrySeconds,
      nowMs: () => performance.now(),
      random: Math.random,
      sleep: (ms) => sleep(ms, undefined, { signal: job.signal }),
      warn: (message) => {
        server.notify("warning", { body: message });
      },
    },
    signal: job.signal,
  }),
);

/** Aborted when the call is cancelled. */
function signalOf(context: RpcContext<never>): AbortSignal {
  const stop = new AbortController();
  context.onCancel(() => {
    stop.abort(new Error("the call is cancelled"));
  });
  return stop.signal;
}

const server = serveRpc(port, readerProtocol, {
  calls: {
    async list({ bucket, prefix, options }, { send }) {
      let objects: ListedObject[] = [];
      for await (const object of reader.list(bucket, prefix, options)) {
        objects.push(object);
        if (objects.length === objectsAtOnce) {
          send({ body: objects });
          objects = [];
        }
      }
      send({ body: objects });
      return { body: undefined };
    },
    look: async (object) => ({ body: await reader.look(object) }),
    async fetch({ doing, request, fd }, context) {
      await reader.fetch(doing, request, fd, signalOf(context));
      return { body: undefined };
    },
    async bytes({ doing, request }, context) {
      const bytes = await reader.bytes(doing, request, signalOf(context));
      return { body: bytes, transfer: [bytes.buffer] };
    },
  },
  hear: {
    stop() {
      job.abort(new Error("the job is stopped"));
    },
    end() {
      process.exit(); // this thread alone
    },
  },
});
