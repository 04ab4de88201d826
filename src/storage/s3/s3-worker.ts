/**
 * Runs in a worker thread. What is fetched is written to the disk here, from the buffer that the socket filled: the main
 * thread, which is busy with rows, sees none of it. The SDK is loaded here, too.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { assertNever } from "../../util/errors.js";
import {
  type FromReader,
  type Found,
  type ReaderCall,
  type ReaderSettings,
  sentError,
  type ToReader,
} from "./reader-protocol.js";
import type { ListedObject } from "../../s3/listing.js";
import { readerOf } from "./reader.js";
import { openS3Store } from "../../s3/store.js";

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
        send({ kind: "warning", message });
      },
    },
    signal: job.signal,
  }),
);
const running = new Map<number, AbortController>();

function send(message: FromReader, transfer: readonly ArrayBuffer[] = []): void {
  port?.postMessage(message, [...transfer]);
}

async function list(id: number, call: ReaderCall & { kind: "list" }, signal: AbortSignal): Promise<void> {
  let objects: ListedObject[] = [];
  for await (const object of reader.list(call.bucket, call.prefix, call.options)) {
    signal.throwIfAborted();
    objects.push(object);
    if (objects.length === objectsAtOnce) {
      send({ kind: "objects", id, objects });
      objects = [];
    }
  }
  send({ kind: "objects", id, objects });
}

async function find(id: number, call: ReaderCall, signal: AbortSignal): Promise<Found> {
  switch (call.kind) {
    case "list":
      await list(id, call, signal);
      return undefined;
    case "look":
      return await reader.look(call.object);
    case "fetch":
      await reader.fetch(call.doing, call.request, call.fd, signal);
      return undefined;
    case "bytes":
      return await reader.bytes(call.doing, call.request, signal);
    default:
      return assertNever(call);
  }
}

async function answer(id: number, call: ReaderCall): Promise<void> {
  const stop = new AbortController();
  running.set(id, stop);
  try {
    const found = await find(id, call, stop.signal);
    send({ kind: "done", id, found }, found instanceof Uint8Array ? [found.buffer as ArrayBuffer] : []);
  } catch (error) {
    send({ kind: "failed", id, error: sentError(error) });
  } finally {
    running.delete(id);
  }
}

port.on("message", (message: ToReader) => {
  switch (message.kind) {
    case "call":
      void answer(message.id, message.call);
      break;
    case "cancel":
      running.get(message.id)?.abort(new Error("nobody wants it any more"));
      break;
    case "stop":
      job.abort(new Error("the job is stopped"));
      break;
    case "end":
      process.exit(); // this thread alone
  }
});
