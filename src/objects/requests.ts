/** How requests to a store of objects are sent: a bounded number at once, again after transient errors, within their time. */
import { setMaxListeners } from "node:events";
import type { Exchange, HttpResponse } from "../net/connections.js";
import { BrokenTransfer, startSilenceTimeout } from "../net/http.js";
import { JobError } from "../util/errors.js";
import { createLimit } from "../util/promises.js";
import { type RetryTools, tryAgain, type Verdict } from "../util/retry.js";
import type { ObjectCall, ObjectFailure, ObjectProtocol, ReadRequest } from "./protocol.js";

/** Limits of one HTTP request. */
export interface RequestLimits {
  readonly connectMs: number;
  /** The longest pause in which no byte of the response arrives or of the request leaves. */
  readonly silenceMs: number;
  /** The whole request, the response body included. */
  readonly requestMs: number;
}

/** How the requests of one store are sent. */
export interface RequestOptions {
  readonly timeouts: RequestLimits;
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
  call: ObjectCall,
  send: (signal: AbortSignal) => Promise<T>,
  stop?: AbortSignal,
) => Promise<T>;

/** A request named an object that does not exist. */
class ObjectMissingError extends Error {}

/** Resolves to undefined where a request named an object that does not exist. */
export async function orUndefined<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof ObjectMissingError) {
      return undefined;
    }
    throw error;
  }
}

/** The most requests to one store in flight at once. */
export const maxConcurrentRequests = 24;

/** Credentials that the store refuses are looked up again at most this often. */
const renewalMs = 5000;

/** Makes the function that sends all requests to one store: it bounds concurrency, retries, and renews credentials. */
export function createSendRequest(
  protocol: Pick<ObjectProtocol, "classify" | "renew">,
  { timeouts, retry, signal }: RequestOptions,
): SendRequest {
  const limit = createLimit(maxConcurrentRequests);
  let renewal = { atMs: Number.NEGATIVE_INFINITY, done: Promise.resolve<unknown>(undefined) };

  const withRenewal = async <T>(call: ObjectCall, send: () => Promise<T>): Promise<T> => {
    const before = renewal;
    try {
      return await send();
    } catch (error) {
      if (protocol.classify(error, call).kind !== "credentials") {
        throw error;
      }
      if (renewal === before) {
        const nowMs = performance.now();
        if (nowMs - before.atMs < renewalMs) {
          throw error;
        }
        const done = protocol.renew().catch((failure: unknown) => {
          renewal = before;
          throw failure;
        });
        renewal = { atMs: nowMs, done };
      }
      await renewal.done;
      return await send();
    }
  };

  return async (call, send, stop = signal) => {
    const stops = [signal, stop];
    const judge = (error: unknown): Verdict => {
      throwIfAborted(stops);
      return error instanceof JobError
        ? { kind: "end", error }
        : retryVerdict(error, protocol.classify(error, call), call);
    };
    const hint = "run the same command again; committed spans are kept. retry.max_seconds sets how long it tries";
    return await tryAgain(call.act, retry, { judge, code: "OBJECT_STORE", hint }, () =>
      limit(() => withRenewal(call, () => timed(send, stops, timeouts.requestMs))),
    );
  };
}

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

function retryVerdict(error: unknown, failure: ObjectFailure, call: ObjectCall): Verdict {
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
    case "unsupported":
      return { kind: "end", error: failure.error };
    case "exists": {
      const hint = "give the credentials the right to replace what is there";
      return {
        kind: "end",
        error: new JobError("PERMISSION", `${call.act}: the store lets nothing be replaced`, { hint }),
      };
    }
    case "bug":
    default:
      return { kind: "end", error };
  }
}

/** The error for an object that differs from the planned one; `found` says how. */
function objectChangedError({ act }: ObjectCall, found: string): JobError {
  return new JobError("INPUT_CHANGED", `${act}: ${found}`, {
    hint: "put the planned object back; committed spans are kept",
  });
}

/** A technology, and how requests are sent to it. */
export interface StoreTools {
  readonly protocol: ObjectProtocol;
  readonly send: SendRequest;
  readonly silenceMs: number;
}

/**
 * Reads a range; each attempt resumes where the last one ended.
 * @param onBytes receives bytes, which are overwritten after it returns, and their offset in the object
 */
export async function readResuming(
  { protocol, send, silenceMs }: StoreTools,
  call: ObjectCall,
  { object, etag, start, end }: ReadRequest,
  onBytes: (bytes: Uint8Array, offset: number) => void,
): Promise<void> {
  let offset = start;
  const resumed = send(call, async (signal) => {
    const from = offset;
    if (from === end) {
      return; // the last attempt failed after its last byte
    }

    using silence = startSilenceTimeout(signal, silenceMs);
    const onHeaders: Exchange["onHeaders"] = (response) => {
      silence.reset();
      if (response.status < 200 || response.status >= 300) {
        return undefined; // the protocol turns other statuses into errors
      }
      checkResponse(response, { start: from, end, etag });
      return (chunk) => {
        silence.reset();
        if (offset + chunk.length > end) {
          throw new BrokenTransfer(`a body of ${end - from} bytes is longer`);
        }
        onBytes(chunk, offset);
        offset += chunk.length;
      };
    };
    await protocol.get({ object, etag, start: from, end, onHeaders }, silence.signal);
    if (offset < end) {
      throw new BrokenTransfer(`a body of ${end - from} bytes ended after ${offset - from}`);
    }
  });
  await resumed.catch((error: unknown) => {
    throw error instanceof ObjectMissingError ? objectChangedError(call, "it is gone") : error;
  });
}

/** @throws BrokenTransfer when a response holds other bytes, or those of another object */
function checkResponse(
  { headers }: Omit<HttpResponse, "body">,
  { start, end, etag }: { start: number; end: number; etag: string },
): void {
  const { "content-range": range, etag: answered } = headers;
  if (range !== undefined ? !range.startsWith(`bytes ${start}-${end - 1}/`) : start !== 0) {
    throw new BrokenTransfer(
      `the store answered with ${range ?? "all bytes"} where ${start} to ${end - 1} were asked for`,
    );
  }
  if (answered !== undefined && answered !== etag) {
    throw new BrokenTransfer(`the store answered with ETag ${answered} where ${etag} was asked for`);
  }
}
