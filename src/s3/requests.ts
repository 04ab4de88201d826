import { setMaxListeners } from "node:events";
import { S3Client } from "@aws-sdk/client-s3";
import { loadConfig, NODE_REGION_CONFIG_FILE_OPTIONS, NODE_REGION_CONFIG_OPTIONS } from "@smithy/core/config";
import { BrokenTransfer } from "../net/http-failures.js";
import { JobError } from "../util/errors.js";
import { createLimit } from "../util/limit.js";
import { type RetryTools, tryAgain, type Verdict } from "../util/retry.js";
import { credentialsFrom } from "./credentials.js";
import { classify, type S3Call } from "./failures.js";

/** How to reach a store, and how it keeps what is written. What is undefined comes from the environment, as for the AWS command line. */
export interface S3Settings {
  readonly endpoint?: string | undefined;
  readonly region?: string | undefined;
  readonly pathStyle?: boolean | undefined;
  readonly requestPayer?: "requester" | undefined;
  /** Server-side encryption of objects that are written; undefined leaves it to the bucket. */
  readonly encryption?: Encryption | undefined;
}

export interface Encryption {
  readonly algorithm: "AES256" | "aws:kms";
  readonly keyId?: string | undefined;
  readonly bucketKey?: boolean | undefined;
}

/** Limits of one HTTP request. */
export interface S3Timeouts {
  readonly connectMs: number;
  /** The longest pause in which no byte of the response arrives or of the request leaves. */
  readonly silenceMs: number;
  /** The whole request, the response body included. */
  readonly requestMs: number;
}

/** How to reach one store, and how to retry its requests. */
export interface S3Options {
  readonly settings: S3Settings;
  readonly timeouts: S3Timeouts;
  readonly retry: RetryTools;
  /** The job's signal; requests reject with its reason. */
  readonly signal: AbortSignal;
}

/**
 * Sends a request, and again after each transient error until `retry` gives up. The job's signal and `stop` end it.
 * `send` passes its signal on.
 * @throws ObjectMissingError; JobError INPUT_CHANGED, PERMISSION, FILE_MISSING, OBJECT_STORE; a signal's reason
 */
export type SendRequest = <T>(
  call: S3Call,
  send: (client: S3Client, signal: AbortSignal) => Promise<T>,
  stop?: AbortSignal,
) => Promise<T>;

/** A request named an object that does not exist. */
export class ObjectMissingError extends Error {}

/** The most requests to one store in flight at once. */
const maxConcurrentRequests = 24;

/** Credentials that the store refuses are looked up again at most this often. */
const renewalMs = 5000;

/** Makes the function that sends all requests to one store: it bounds concurrency, retries, and renews credentials. */
export function createSendRequest(options: S3Options): { readonly send: SendRequest } & Disposable {
  const { timeouts, retry, signal } = options;
  const limit = createLimit(maxConcurrentRequests);
  let opened: S3Client | undefined;
  let renewal = { atMs: Number.NEGATIVE_INFINITY, done: Promise.resolve<unknown>(undefined) };
  const withRenewal = async <T>(call: S3Call, send: (client: S3Client) => Promise<T>): Promise<T> => {
    const client = (opened ??= openClient(options));
    const before = renewal;
    try {
      return await send(client);
    } catch (error) {
      if (classify(error, call).kind !== "credentials") {
        throw error;
      }
      if (renewal === before) {
        const nowMs = performance.now();
        if (nowMs - before.atMs < renewalMs) {
          throw error;
        }
        const done = client.config.credentials({ forceRefresh: true }).catch((failure: unknown) => {
          renewal = before;
          throw failure;
        });
        renewal = { atMs: nowMs, done };
      }
      await renewal.done;
      return await send(client);
    }
  };
  return {
    async send(call, send, stop = signal) {
      const stops = [signal, stop];
      const judge = (error: unknown): Verdict => {
        throwIfAborted(stops);
        return retryVerdict(error, call);
      };
      const hint = "run the same command again; committed spans are kept. retry.max_seconds sets how long it tries";
      return await tryAgain(call.act, retry, { judge, code: "OBJECT_STORE", hint }, () =>
        limit(() => withRenewal(call, (client) => timed((ended) => send(client, ended), stops, timeouts.requestMs))),
      );
    },
    [Symbol.dispose]() {
      opened?.destroy();
    },
  };
}

function openClient({ settings, timeouts: { connectMs, silenceMs }, signal }: S3Options): S3Client {
  // The SDK warns on stderr that it will drop Node 20.
  process.env["AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED"] ??= "true";
  const endpoint = settings.endpoint ?? process.env["AWS_ENDPOINT_URL_S3"] ?? process.env["AWS_ENDPOINT_URL"];
  const agent = { keepAlive: true, maxSockets: maxConcurrentRequests };
  return new S3Client({
    // Without a region: other stores ignore it, and AWS names the right one.
    region:
      settings.region ??
      loadConfig({ ...NODE_REGION_CONFIG_OPTIONS, default: "us-east-1" }, NODE_REGION_CONFIG_FILE_OPTIONS),
    ...(settings.endpoint === undefined ? {} : { endpoint: settings.endpoint }),
    forcePathStyle: settings.pathStyle ?? endpoint !== undefined,
    // AWS names a bucket's region in its response to a request that went to another one.
    followRegionRedirects: endpoint === undefined,
    // The SDK would warn on stderr that a stream cannot be sent twice; a retry opens the file anew.
    logger: { debug: ignore, info: ignore, warn: ignore, error: ignore },
    // `SendRequest` retries: it resumes a body where it ended, tries as long as the spec says, and stops with the job.
    maxAttempts: 1,
    // Ranges have no checksums, and some stores support none.
    responseChecksumValidation: "WHEN_REQUIRED",
    // A search that hangs ends before the request that waits for it, and says so.
    credentials: credentialsFrom({ searchMs: silenceMs * 0.75, signal }),
    requestHandler: {
      connectionTimeout: connectMs,
      socketTimeout: silenceMs,
      httpAgent: agent,
      httpsAgent: agent,
    },
  });
}

const ignore = (): void => undefined;

function throwIfAborted(stops: readonly AbortSignal[]): void {
  for (const stop of stops) {
    stop.throwIfAborted();
  }
}

/**
 * Runs a request, which any of `stops` and its time end. `AbortSignal.any` is not used: Node 20 never frees its results.
 * @throws the reason of what ended it
 */
async function timed<T>(
  send: (signal: AbortSignal) => Promise<T>,
  stops: readonly AbortSignal[],
  requestMs: number,
): Promise<T> {
  throwIfAborted(stops);
  const ended = new AbortController();
  const stop = (): void => {
    ended.abort(stops.find(({ aborted }) => aborted)?.reason);
  };
  const timer = setTimeout(() => {
    ended.abort(new BrokenTransfer(`a request took more than ${requestMs / 1000} s`));
  }, requestMs);
  setMaxListeners(0, ...stops); // else Node warns of a leak when many requests are in flight
  for (const signal of stops) {
    signal.addEventListener("abort", stop);
  }
  try {
    return await send(ended.signal);
  } catch (error) {
    ended.signal.throwIfAborted();
    ended.abort(error); // a request goes on whose body could not be read
    throw error;
  } finally {
    clearTimeout(timer);
    for (const signal of stops) {
      signal.removeEventListener("abort", stop);
    }
  }
}

function retryVerdict(error: unknown, call: S3Call): Verdict {
  if (error instanceof JobError) {
    return { kind: "end", error };
  }
  const failure = classify(error, call);
  switch (failure.kind) {
    case "transient":
      return { kind: "again", found: failure.found };
    case "credentials":
      // New credentials may arrive a moment after the old ones expire.
      return failure.expired ? { kind: "again", found: failure.found } : { kind: "end", error: failure.error };
    case "missing":
      return { kind: "end", error: new ObjectMissingError(`${call.act}: there is no such object`) };
    case "changed":
      return { kind: "end", error: objectChangedError(call, failure.found) };
    case "permanent":
      return { kind: "end", error: failure.error };
    case "exists":
    case "bug":
    default:
      return { kind: "end", error };
  }
}

/** The error for an object that differs from the planned one; `found` says how. */
export function objectChangedError({ act }: S3Call, found: string): JobError {
  return new JobError("INPUT_CHANGED", `${act}: ${found}`, {
    hint: "put the planned object back; committed spans are kept",
  });
}
