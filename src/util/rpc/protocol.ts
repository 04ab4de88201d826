/**
 * Calls between two threads. The client calls; the server answers each call with any number of items, then with a result
 * or an error. Either end also sends notices, which are not answered. Each end checks what it receives against the
 * protocol. A message that does not fit is a bug: it ends the server's thread, or fails all calls of the client.
 */
import { type Check, isInteger, isRecord } from "../checks.js";
import { errnoOf, type ErrorCode, exitCodes, JobError, messageOf } from "../errors.js";

/** What a call takes, and what it is answered with. */
export interface Operation {
  readonly request: Check<unknown>;
  readonly result: Check<unknown>;
  /** Set where items come before the result. */
  readonly item?: Check<unknown>;
}

export interface RpcProtocol {
  readonly calls: Readonly<Record<string, Operation>>;
  /** Notices to the server. */
  readonly toServer: Readonly<Record<string, Check<unknown>>>;
  /** Notices to the client. */
  readonly toClient: Readonly<Record<string, Check<unknown>>>;
}

export type Checked<C> = C extends Check<infer T> ? T : never;
export type CallName<P extends RpcProtocol> = keyof P["calls"] & string;
export type RequestOf<P extends RpcProtocol, K extends CallName<P>> = Checked<P["calls"][K]["request"]>;
export type ItemOf<P extends RpcProtocol, K extends CallName<P>> = Checked<P["calls"][K]["item"]>;
export type ResultOf<P extends RpcProtocol, K extends CallName<P>> = Checked<P["calls"][K]["result"]>;
export type NoticeHandlers<Notices> = { readonly [K in keyof Notices]: (body: Checked<Notices[K]>) => void };
export type Transfer = readonly object[];

/** What is sent, and which of its buffers and ports move to the other thread. */
export interface Sent<T> {
  readonly body: T;
  readonly transfer?: Transfer;
}

export type ToServer =
  | { readonly rpc: "call"; readonly id: number; readonly name: string; readonly body: unknown }
  | { readonly rpc: "cancel"; readonly id: number }
  | { readonly rpc: "notice"; readonly name: string; readonly body: unknown };

export type ToClient =
  | { readonly rpc: "item"; readonly id: number; readonly body: unknown }
  | { readonly rpc: "result"; readonly id: number; readonly body: unknown }
  | { readonly rpc: "error"; readonly id: number; readonly error: SentError }
  | { readonly rpc: "notice"; readonly name: string; readonly body: unknown };

export function isToServer(value: unknown): value is ToServer {
  if (!isRecord(value)) {
    return false;
  }
  switch (value["rpc"]) {
    case "call":
      return isInteger(value["id"]) && typeof value["name"] === "string";
    case "cancel":
      return isInteger(value["id"]);
    default:
      return isNotice(value);
  }
}

export function isToClient(value: unknown): value is ToClient {
  if (!isRecord(value)) {
    return false;
  }
  switch (value["rpc"]) {
    case "item":
    case "result":
      return isInteger(value["id"]);
    case "error":
      return isInteger(value["id"]) && isSentError(value["error"]);
    default:
      return isNotice(value);
  }
}

function isNotice({ rpc, name }: Readonly<Record<string, unknown>>): boolean {
  return rpc === "notice" && typeof name === "string";
}

/** The error for a message that does not fit the protocol. */
export function unfit(what: string): Error {
  return new Error(`a message between threads does not fit: ${what}`);
}

export function own<T>(record: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(record, name) ? record[name] : undefined;
}

/** Delivers a notice to its listener. Returns the fault of a notice that does not fit the protocol. */
export function deliver<Notices extends Readonly<Record<string, Check<unknown>>>>(
  checks: Notices,
  listeners: NoticeHandlers<Notices>,
  { name, body }: { readonly name: string; readonly body: unknown },
): Error | undefined {
  if (own(checks, name)?.(body) !== true) {
    return unfit(`the notice ${name}`);
  }
  listeners[name as keyof Notices](body as Checked<Notices[keyof Notices]>); // checked
  return undefined;
}

/** An error as it is sent to another thread: a structured clone would lose its class and its code. */
interface SentError {
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

function isSentError(value: unknown): value is SentError {
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
