import { setMaxListeners } from "node:events";
import { Worker } from "node:worker_threads";
import type { S3Options } from "../../s3/attempts.js";
import type { ListedObject } from "../../s3/listing.js";
import type { Found, FromReader, ReaderCall, ReaderSettings, ToReader } from "./reader-protocol.js";
import { receivedError } from "./reader-protocol.js";
import { brokenThread } from "../../util/worker-port.js";
import type { S3Reader } from "./reader.js";
import type { ObjectFacts } from "../../s3/store.js";

const patienceMs = 1000;
/** The number of a thread that has ended. */
const gone = -1;

interface Pending {
  /** Objects that were listed so far. */
  readonly listed: ListedObject[];
  resolve(found: Found): void;
  reject(error: Error): void;
}

/** Reads in a thread of its own, which is started now: the SDK takes a while to load. */
export function openReaderThread(options: S3Options): S3Reader {
  const { place, timeouts, retry, signal } = options;
  const settings: ReaderSettings = { place, timeouts, retrySeconds: retry.maxSeconds };
  const worker = new Worker(new URL("./s3-worker.js", import.meta.url), { workerData: settings, name: "s3" });
  const stop = (): void => {
    worker.postMessage({ kind: "stop" } satisfies ToReader);
  };
  signal.addEventListener("abort", stop, { once: true });
  const ask = createAsk(worker, options);
  return {
    async *list(bucket, prefix, asked = {}) {
      const listed: ListedObject[] = [];
      await ask({ kind: "list", bucket, prefix, options: asked }, { listed });
      yield* listed;
    },
    look: async (object) => (await ask({ kind: "look", object })) as ObjectFacts | undefined,
    async fetch(doing, request, fd, own) {
      await ask({ kind: "fetch", doing, request, fd }, { own });
    },
    bytes: async (doing, request, own) => (await ask({ kind: "bytes", doing, request }, { own })) as Uint8Array,
    async [Symbol.asyncDispose]() {
      signal.removeEventListener("abort", stop);
      stop();
      await ended(worker);
    },
  };
}

/** It ends by itself, so that what it compiled is kept, unless something holds it up. */
async function ended(worker: Worker): Promise<void> {
  if (worker.threadId === gone) {
    return;
  }
  const end = new Promise((resolve) => {
    worker.once("exit", resolve);
  });
  worker.postMessage({ kind: "end" } satisfies ToReader);
  const late = setTimeout(() => void worker.terminate(), patienceMs);
  await end;
  clearTimeout(late);
}

type Ask = (
  call: ReaderCall,
  also?: { readonly listed?: ListedObject[]; readonly own?: AbortSignal | undefined },
) => Promise<Found>;

/** Asks the thread for something. What is cancelled is settled when the thread has let go of it, and not before. */
function createAsk(worker: Worker, { retry, signal }: S3Options): Ask {
  const pending = new Map<number, Pending>();
  const broken = listen(worker, pending, (message) => {
    retry.warn(message);
  });
  const say = (message: ToReader): void => {
    worker.postMessage(message);
  };
  let calls = 0;
  return async (call, { listed = [], own } = {}) => {
    for (const end of [signal, own, broken]) {
      end?.throwIfAborted();
    }
    calls += 1;
    const id = calls;
    const cancel = (): void => {
      say({ kind: "cancel", id });
    };
    if (own !== undefined) {
      setMaxListeners(0, own); // many calls at once are no leak, of which Node would warn the user
      own.addEventListener("abort", cancel, { once: true });
    }
    try {
      return await new Promise<Found>((resolve, reject) => {
        pending.set(id, { listed, resolve, reject });
        say({ kind: "call", id, call });
      });
    } catch (error) {
      signal.throwIfAborted();
      own?.throwIfAborted();
      throw error;
    } finally {
      own?.removeEventListener("abort", cancel);
    }
  };
}

/** Answers go to whom they are for. The signal is aborted when there will be no more. */
function listen(worker: Worker, pending: Map<number, Pending>, warn: (message: string) => void): AbortSignal {
  const broken = new AbortController();
  const fail = (error: Error): void => {
    broken.abort(error);
    for (const call of pending.values()) {
      call.reject(error);
    }
    pending.clear();
  };
  worker.on("error", (cause) => {
    fail(brokenThread("reading from S3", cause));
  });
  worker.once("exit", () => {
    fail(new Error("the thread that reads from S3 has ended"));
  });
  worker.on("message", (message: FromReader) => {
    if (message.kind === "warning") {
      warn(message.message);
      return;
    }
    const call = pending.get(message.id);
    if (message.kind === "objects") {
      call?.listed.push(...message.objects);
      return;
    }
    pending.delete(message.id);
    if (message.kind === "done") {
      call?.resolve(message.found);
    } else {
      call?.reject(receivedError(message.error));
    }
  });
  return broken.signal;
}
