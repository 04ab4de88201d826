import { errnoOf, type ErrorCode, JobError, messageOf } from "../../util/errors.js";
import type { S3Uri } from "../../spec/s3-uri.js";
import type { S3Place, S3Timeouts } from "../../s3/client.js";
import type { ListedObject } from "../../s3/listing.js";
import type { ListOptions, ObjectFacts, ReadRequest } from "../../s3/store.js";

/** What the main thread and the one that reads from S3 say to each other. */
export interface ReaderSettings {
  readonly place: S3Place;
  readonly timeouts: S3Timeouts | undefined;
  readonly retrySeconds: number;
}

export type ReaderCall =
  | { readonly kind: "list"; readonly bucket: string; readonly prefix: string; readonly options: ListOptions }
  | { readonly kind: "look"; readonly object: S3Uri }
  | { readonly kind: "fetch"; readonly doing: string; readonly request: ReadRequest; readonly fd: number }
  | { readonly kind: "bytes"; readonly doing: string; readonly request: ReadRequest };

export type ToReader =
  | { readonly kind: "call"; readonly id: number; readonly call: ReaderCall }
  | { readonly kind: "cancel"; readonly id: number }
  /** The job is stopped: all that is under way ends, pauses before another try included. */
  | { readonly kind: "stop" }
  /** Nothing will be asked any more. */
  | { readonly kind: "end" };

/** What a call has found: nothing for `list`, whose objects come before, and for `fetch`. */
export type Found = ObjectFacts | Uint8Array | undefined;

export type FromReader =
  | { readonly kind: "warning"; readonly message: string }
  | { readonly kind: "objects"; readonly id: number; readonly objects: readonly ListedObject[] }
  | { readonly kind: "done"; readonly id: number; readonly found: Found }
  | { readonly kind: "failed"; readonly id: number; readonly error: SentError };

/** An error on its way between threads: a copy would lose its class and code. */
export interface SentError {
  /** Of a JobError. */
  readonly job?: { readonly code: ErrorCode; readonly hint: string | undefined };
  readonly message: string;
  readonly errno: string | undefined;
  readonly stack: string | undefined;
  readonly cause: string | undefined;
}

export function sentError(error: unknown): SentError {
  const cause: unknown = error instanceof Error ? error.cause : undefined;
  return {
    ...(error instanceof JobError ? { job: { code: error.code, hint: error.hint } } : {}),
    message: messageOf(error),
    errno: errnoOf(error),
    stack: error instanceof Error ? error.stack : undefined,
    cause: cause === undefined ? undefined : messageOf(cause),
  };
}

export function receivedError({ job, message, errno, stack, cause }: SentError): Error {
  const options = cause === undefined ? {} : { cause: new Error(cause) };
  if (job !== undefined) {
    return new JobError(job.code, message, { ...options, ...(job.hint === undefined ? {} : { hint: job.hint }) });
  }
  const error = new Error(message, options);
  return Object.assign(error, errno === undefined ? {} : { code: errno }, stack === undefined ? {} : { stack });
}
