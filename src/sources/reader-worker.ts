/** Writes fetched bytes to disk straight from the socket's buffer: the main thread, busy with rows, handles none. */
import { EventEmitter, once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { openStoreAt } from "../stores/objects/open.js";
import { CredentialsError, type GivenCredentials, type ListedObject } from "../stores/objects/protocol.js";
import { type RpcContext, serveRpc } from "../base/rpc.js";
import { createReader, type CredentialsAnswer, type ReaderProtocol, type ReaderSettings } from "./reader.js";

const port = parentPort;
if (port === null) {
  throw new Error("reader-worker runs in a worker thread only");
}

const { place, timeouts, retrySeconds, asksCredentials } = workerData as ReaderSettings;
/** Objects of a listing in one message; a page of the store has as many. */
const objectsPerMessage = 1000;

const job = new AbortController();
const answers = new EventEmitter<{ credentials: [CredentialsAnswer] }>();
const opening = openStoreAt(
  place,
  {
    timeouts,
    retry: {
      maxSeconds: retrySeconds,
      nowMs: () => performance.now(),
      random: Math.random,
      sleep: (ms) => sleep(ms, undefined, { signal: job.signal }),
      warn: (message) => {
        server.notify("warning", { body: message });
      },
      warnedMs: new Map(),
    },
    signal: job.signal,
  },
  asksCredentials ? askForCredentials : undefined,
).then(createReader);

async function askForCredentials(): Promise<GivenCredentials> {
  server.notify("credentialsWanted", { body: undefined });
  const [answer] = (await once(answers, "credentials", { signal: job.signal })) as [CredentialsAnswer];
  if ("message" in answer) {
    throw new CredentialsError(answer.message, answer.hint);
  }
  return answer;
}

function signalOf(context: RpcContext<never>): AbortSignal {
  const stop = new AbortController();
  context.onCancel(() => {
    stop.abort(new Error("the call is cancelled"));
  });
  return stop.signal;
}

const server = serveRpc<ReaderProtocol>(port, {
  calls: {
    async list({ bucket, prefix, options }, { send }) {
      let objects: ListedObject[] = [];
      const reader = await opening;
      for await (const object of reader.list(bucket, prefix, options)) {
        objects.push(object);
        if (objects.length === objectsPerMessage) {
          send({ body: objects });
          objects = [];
        }
      }
      send({ body: objects });
      return { body: undefined };
    },
    stat: async (object) => ({ body: await (await opening).stat(object) }),
    async fetchIntoFile({ act, request, fd }, context) {
      await (await opening).fetchIntoFile(act, request, fd, signalOf(context));
      return { body: undefined };
    },
    async readBytes({ act, request }, context) {
      const bytes = await (await opening).readBytes(act, request, signalOf(context));
      return { body: bytes, transfer: [bytes.buffer] };
    },
  },
  onNotice: {
    credentials(answer) {
      answers.emit("credentials", answer);
    },
    stop() {
      job.abort(new Error("the job is stopped"));
    },
    end() {
      process.exit(); // ends this thread only
    },
  },
});
