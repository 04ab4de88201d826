import type { S3Client } from "@aws-sdk/client-s3";
import { JobError } from "../util/errors.js";
import { type RetryTools, tryAgain, type Verdict } from "../util/retry.js";
import { type Watch, watchRequest } from "./watch.js";
import { type Clients, defaultTimeouts, type S3Place, type S3Timeouts } from "./client.js";
import { classify, type S3Call } from "./failures.js";
import { createLimit } from "../util/limit.js";

export interface S3Options {
  readonly place: S3Place;
  readonly timeouts?: S3Timeouts | undefined;
  readonly retry: RetryTools;
  /** The job's: its reason is thrown when it is aborted. */
  readonly signal: AbortSignal;
}

/** Requests of one store under way at once. */
export const requestsAtOnce = 24;

/** Makes a request until it comes through, or cannot. `stop`: ends it, as the job's signal does. */
export type Attempt = <T>(
  call: S3Call,
  work: (client: S3Client, watch: Watch) => Promise<T>,
  stop?: AbortSignal,
) => Promise<T>;

export function createAttempts({ timeouts = defaultTimeouts, retry, signal }: S3Options, clients: Clients): Attempt {
  const limit = createLimit(requestsAtOnce);
  return async (call, work, stop = signal) => {
    const rules = {
      judge: (error: unknown): Verdict => {
        signal.throwIfAborted();
        stop.throwIfAborted();
        return verdictOf(error, call);
      },
      code: "OBJECT_STORE",
      hint: "run the same command again; committed spans are kept. retry.max_seconds sets how long it tries",
    } as const;
    const once = async (client: S3Client): ReturnType<typeof work> => {
      signal.throwIfAborted();
      stop.throwIfAborted();
      using watch = watchRequest(timeouts, [signal, stop]);
      try {
        return await work(client, watch);
      } catch (error) {
        throw watch.signal.aborted ? watch.signal.reason : error;
      }
    };
    const onceOrRenewed = async (): ReturnType<typeof work> => {
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
    return await tryAgain(call.doing, retry, rules, () => limit(onceOrRenewed));
  };
}

/** There is no such object. */
export class NotThere extends Error {}

function verdictOf(error: unknown, call: S3Call): Verdict {
  if (error instanceof JobError) {
    return { kind: "end", error };
  }
  const failure = classify(error, call);
  switch (failure.kind) {
    case "transient":
      return { kind: "again", found: failure.found };
    case "credentials":
      // Whoever rotates them may be late.
      return failure.expired ? { kind: "again", found: failure.found } : { kind: "end", error: failure.error };
    case "missing":
      return { kind: "end", error: new NotThere(`${call.doing}: there is no such object`) };
    case "changed":
      return { kind: "end", error: changed(call, failure.found) };
    case "permanent":
      return { kind: "end", error: failure.error };
    case "exists":
    case "bug":
    default:
      return { kind: "end", error };
  }
}

export function changed({ doing }: S3Call, found: string): JobError {
  return new JobError("INPUT_CHANGED", `${doing}: ${found}`, {
    hint: "put the planned object back; committed spans are kept",
  });
}
