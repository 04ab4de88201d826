import type { S3Client } from "@aws-sdk/client-s3";
import { JobError } from "../util/errors.js";
import { type RetryTools, tryAgain, type Verdict } from "../util/retry.js";
import { type Watchdog, startWatchdog } from "./watchdog.js";
import { type ClientProvider, defaultTimeouts, type S3Settings, type S3Timeouts } from "./client.js";
import { classify, type S3Call } from "./failures.js";
import { createLimit } from "../util/limit.js";

/** How to reach one store, and how to retry its requests. */
export interface S3Options {
  readonly settings: S3Settings;
  readonly timeouts?: S3Timeouts | undefined;
  readonly retry: RetryTools;
  /** The job's signal; requests reject with its reason. */
  readonly signal: AbortSignal;
}

/** The most requests to one store in flight at once. */
export const maxConcurrentRequests = 24;

/**
 * Sends a request, and again after each transient error until `retry` gives up. The job's signal and `stop` end it.
 * @throws ObjectMissingError; JobError INPUT_CHANGED, PERMISSION, FILE_MISSING, OBJECT_STORE; a signal's reason
 */
export type SendRequest = <T>(
  call: S3Call,
  send: (client: S3Client, watchdog: Watchdog) => Promise<T>,
  stop?: AbortSignal,
) => Promise<T>;

/** Makes the function that sends all requests to one store: it bounds concurrency, retries, and renews credentials. */
export function createSendRequest(
  { timeouts = defaultTimeouts, retry, signal }: S3Options,
  clients: ClientProvider,
): SendRequest {
  const limit = createLimit(maxConcurrentRequests);
  return async (call, send, stop = signal) => {
    const rules = {
      judge: (error: unknown): Verdict => {
        signal.throwIfAborted();
        stop.throwIfAborted();
        return retryVerdict(error, call);
      },
      code: "OBJECT_STORE",
      hint: "run the same command again; committed spans are kept. retry.max_seconds sets how long it tries",
    } as const;
    const once = async (client: S3Client): ReturnType<typeof send> => {
      signal.throwIfAborted();
      stop.throwIfAborted();
      using watchdog = startWatchdog(timeouts, [signal, stop]);
      try {
        return await send(client, watchdog);
      } catch (error) {
        throw watchdog.signal.aborted ? watchdog.signal.reason : error;
      }
    };
    const withRenewal = async (): ReturnType<typeof send> => {
      const client = await clients.current();
      try {
        return await once(client);
      } catch (error) {
        if (classify(error, call).kind === "credentials" && (await clients.renew(client))) {
          return await once(await clients.current());
        }
        throw error;
      }
    };
    return await tryAgain(call.act, retry, rules, () => limit(withRenewal));
  };
}

/** A request named an object that does not exist. */
export class ObjectMissingError extends Error {}

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
