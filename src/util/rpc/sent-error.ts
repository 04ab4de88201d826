import { errnoOf, type ErrorCode, exitCodes, JobError, messageOf } from "../errors.js";
import { isRecord } from "../checks.js";

/** An error as it is sent to another thread: a structured clone would lose its class and its code. */
export interface SentError {
  readonly message: string;
  /** Set for a JobError. */
  readonly job?: { readonly code: ErrorCode; readonly hint: string | undefined };
  readonly errno: string | undefined;
  readonly stack: string | undefined;
  /** The message of its cause. */
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

export function isSentError(value: unknown): value is SentError {
  if (!isRecord(value) || typeof value["message"] !== "string") {
    return false;
  }
  const { job } = value;
  return (
    job === undefined || (isRecord(job) && typeof job["code"] === "string" && Object.hasOwn(exitCodes, job["code"]))
  );
}

export function receivedError({ job, message, errno, stack, cause }: SentError): Error {
  const options = cause === undefined ? {} : { cause: new Error(cause) };
  if (job !== undefined) {
    return new JobError(job.code, message, { ...options, ...(job.hint === undefined ? {} : { hint: job.hint }) });
  }
  const error = new Error(message, options);
  return Object.assign(error, errno === undefined ? {} : { code: errno }, stack === undefined ? {} : { stack });
}
