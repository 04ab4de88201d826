/**
 * Calls between two threads. The client calls; the server answers each call with any number of items, then with a result
 * or an error. Either end also sends notices, which are not answered. Each end checks what it receives against the
 * protocol. A message that does not fit is a bug: it ends the server's thread, or fails all calls of the client.
 */
import { type Check, isInteger, isRecord } from "./checks.js";
import { assertNever, errnoOf, type ErrorCode, exitCodes, JobError, messageOf } from "./errors.js";

/** What a call takes, and what it is answered with. */
interface Operation {
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

type Checked<C> = C extends Check<infer T> ? T : never;
type CallName<P extends RpcProtocol> = keyof P["calls"] & string;
type RequestOf<P extends RpcProtocol, K extends CallName<P>> = Checked<P["calls"][K]["request"]>;
type ItemOf<P extends RpcProtocol, K extends CallName<P>> = Checked<P["calls"][K]["item"]>;
type ResultOf<P extends RpcProtocol, K extends CallName<P>> = Checked<P["calls"][K]["result"]>;
type NoticeHandlers<Notices> = { readonly [K in keyof Notices]: (body: Checked<Notices[K]>) => void };
type Transfer = readonly object[];

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

function isToServer(value: unknown): value is ToServer {
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

function isToClient(value: unknown): value is ToClient {
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
function unfit(what: string): Error {
  return new Error(`a message between threads does not fit: ${what}`);
}

function own<T>(record: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(record, name) ? record[name] : undefined;
}

/** Delivers a notice to its listener. Returns the fault of a notice that does not fit the protocol. */
function deliver<Notices extends Readonly<Record<string, Check<unknown>>>>(
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

function sentError(error: unknown): SentError {
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

function receivedError({ job, message, errno, stack, cause }: SentError): Error {
  const options = cause === undefined ? {} : { cause: new Error(cause) };
  if (job !== undefined) {
    return new JobError(job.code, message, { ...options, ...(job.hint === undefined ? {} : { hint: job.hint }) });
  }
  const error = new Error(message, options);
  return Object.assign(error, errno === undefined ? {} : { code: errno }, stack === undefined ? {} : { stack });
}

/** Sends a notice to a server without listening for its answers. */
export function notifyServer<P extends RpcProtocol, K extends keyof P["toServer"] & string>(
  port: Pick<WorkerPort, "postMessage">,
  _protocol: P,
  name: K,
  { body, transfer = [] }: Sent<Checked<P["toServer"][K]>>,
): void {
  port.postMessage({ rpc: "notice", name, body } satisfies ToServer, transfer);
}

/** A call under way. */
export interface RpcCall<T> {
  /** Rejects with the server's error, or with why there will be no answer. */
  readonly result: Promise<T>;
  /** Cancels the call. It is settled nevertheless, once the server has stopped. */
  readonly cancel: () => void;
}

export interface RpcClient<P extends RpcProtocol> {
  /** How many calls are not answered. */
  readonly pending: number;
  /** The error after which no call is answered. */
  readonly broken: Error | undefined;
  /** @param onItem called with each item, in order */
  call<K extends CallName<P>>(
    name: K,
    request: Sent<RequestOf<P, K>>,
    onItem?: (item: ItemOf<P, K>) => void,
  ): RpcCall<ResultOf<P, K>>;
  notify<K extends keyof P["toServer"] & string>(name: K, notice: Sent<Checked<P["toServer"][K]>>): void;
}

interface RpcClientOptions<P extends RpcProtocol> {
  /** What the server does, as messages begin: "reading from S3". */
  readonly doing: string;
  readonly onNotice: NoticeHandlers<P["toClient"]>;
  /** Called once, before all calls are rejected: the other end is gone, or its messages do not fit. */
  readonly onBroken?: (error: Error) => void;
}

interface Pending {
  readonly operation: Operation;
  readonly onItem: ((item: unknown) => void) | undefined;
  resolve(result: unknown): void;
  reject(error: Error): void;
}

interface Calls {
  /** Calls that are not answered, by id. */
  readonly pending: Map<number, Pending>;
  nextId: number;
  broken: Error | undefined;
}

export function openRpcClient<P extends RpcProtocol>(
  port: WorkerPort,
  protocol: P,
  { doing, onNotice, onBroken }: RpcClientOptions<P>,
): RpcClient<P> {
  const calls: Calls = { pending: new Map(), nextId: 0, broken: undefined };
  const fail = (error: Error): void => {
    if (calls.broken === undefined) {
      calls.broken = error;
      onBroken?.(error);
      for (const call of calls.pending.values()) {
        call.reject(error);
      }
      calls.pending.clear();
    }
  };
  port.on("message", (message) => {
    if (calls.broken === undefined) {
      const fault = receiveAnswer(message, calls.pending, (notice) => deliver(protocol.toClient, onNotice, notice));
      if (fault !== undefined) {
        fail(fault);
      }
    }
  });
  listenForEnd(port, doing, fail);
  return {
    get pending() {
      return calls.pending.size;
    },
    get broken() {
      return calls.broken;
    },
    call(name, request, onItem) {
      const operation = protocol.calls[name] as Operation; // the type of `name` says that there is one
      const { result, cancel } = startCall(port, calls, {
        name,
        operation,
        request,
        onItem: onItem as Pending["onItem"],
      });
      return { result: result as Promise<ResultOf<P, typeof name>>, cancel }; // checked when it comes
    },
    notify(name, notice) {
      notifyServer(port, protocol, name, notice);
    },
  };
}

interface NewCall extends Pick<Pending, "operation" | "onItem"> {
  readonly name: string;
  readonly request: Sent<unknown>;
}

function startCall(port: WorkerPort, calls: Calls, { name, operation, request, onItem }: NewCall): RpcCall<unknown> {
  const id = calls.nextId;
  calls.nextId += 1;
  const post = (message: ToServer, transfer: Transfer = []): void => {
    port.postMessage(message, transfer);
  };
  const result = new Promise<unknown>((resolve, reject) => {
    if (calls.broken !== undefined) {
      reject(calls.broken); // a thread that has ended would never answer
      return;
    }
    post({ rpc: "call", id, name, body: request.body }, request.transfer);
    calls.pending.set(id, { operation, onItem, resolve, reject });
  });
  return {
    result,
    cancel() {
      post({ rpc: "cancel", id });
    },
  };
}

function listenForEnd(port: WorkerPort, doing: string, fail: (error: Error) => void): void {
  port.on("error", (cause) => {
    fail(brokenThread(doing, cause));
  });
  port.on("messageerror", (cause) => {
    fail(new Error(`${doing}: an answer of a worker thread did not arrive whole`, { cause }));
  });
  for (const event of ["close", "exit"]) {
    port.on(event, () => {
      fail(new Error(`${doing}: the worker thread has ended`));
    });
  }
}

/** Delivers a response to its call. Returns the fault of a response that does not fit. */
function receiveAnswer(
  message: unknown,
  pending: Map<number, Pending>,
  onNotice: (notice: Extract<ToClient, { rpc: "notice" }>) => Error | undefined,
): Error | undefined {
  if (!isToClient(message)) {
    return unfit("an answer");
  }
  if (message.rpc === "notice") {
    return onNotice(message);
  }
  const call = pending.get(message.id);
  if (call === undefined) {
    return unfit(`an answer to call ${message.id}, which is not under way`);
  }
  if (message.rpc === "item") {
    if (call.operation.item?.(message.body) !== true) {
      return unfit("an item");
    }
    call.onItem?.(message.body);
    return undefined;
  }
  if (message.rpc === "result" && !call.operation.result(message.body)) {
    return unfit("a result");
  }
  pending.delete(message.id);
  if (message.rpc === "result") {
    call.resolve(message.body);
  } else {
    call.reject(receivedError(message.error));
  }
  return undefined;
}

/** The server's side of one call. */
export interface RpcContext<Item> {
  readonly isCancelled: () => boolean;
  /** Calls `handler` when the call is cancelled. */
  readonly onCancel: (handler: () => void) => void;
  readonly send: (item: Sent<Item>) => void;
}

export interface RpcHandlers<P extends RpcProtocol> {
  readonly calls: {
    readonly [K in CallName<P>]: (
      request: RequestOf<P, K>,
      context: RpcContext<ItemOf<P, K>>,
    ) => Promise<Sent<ResultOf<P, K>>>;
  };
  readonly onNotice: NoticeHandlers<P["toServer"]>;
}

interface RpcServer<P extends RpcProtocol> {
  notify<K extends keyof P["toClient"] & string>(name: K, notice: Sent<Checked<P["toClient"][K]>>): void;
}

interface CallUnderWay {
  isCancelled: boolean;
  onCancel: (() => void) | undefined;
}

/** Answers calls as they come: a handler that serves one after the other queues them itself. */
export function serveRpc<P extends RpcProtocol>(port: WorkerPort, protocol: P, handlers: RpcHandlers<P>): RpcServer<P> {
  const underWay = new Map<number, CallUnderWay>();
  const post = (message: ToClient, transfer: Transfer = []): void => {
    port.postMessage(message, transfer);
  };
  const answer = async (id: number, name: CallName<P>, request: unknown): Promise<void> => {
    const call: CallUnderWay = { isCancelled: false, onCancel: undefined };
    underWay.set(id, call);
    try {
      const context = contextOf(call, ({ body, transfer }) => {
        post({ rpc: "item", id, body }, transfer);
      });
      const { body, transfer } = await handlers.calls[name](request as RequestOf<P, typeof name>, context); // checked
      post({ rpc: "result", id, body }, transfer);
    } catch (error) {
      post({ rpc: "error", id, error: sentError(error) });
    } finally {
      underWay.delete(id);
    }
  };
  port.on("messageerror", (cause) => {
    throw new Error("a message did not arrive whole", { cause }); // ends the thread, which its client notices
  });
  port.on("message", (message) => {
    if (!isToServer(message)) {
      throw unfit("a call"); // the same
    }
    const fault = receiveCall(message, protocol, handlers.onNotice, {
      answer,
      cancel: (id) => cancel(underWay.get(id)),
    });
    if (fault !== undefined) {
      throw fault;
    }
  });
  return {
    notify(name, { body, transfer }) {
      post({ rpc: "notice", name, body }, transfer);
    },
  };
}

interface Answering {
  answer(id: number, name: string, request: unknown): Promise<void>;
  cancel(id: number): void;
}

/** Handles a message. Returns its fault if it does not fit the protocol. */
function receiveCall<P extends RpcProtocol>(
  message: ToServer,
  protocol: P,
  onNotice: NoticeHandlers<P["toServer"]>,
  calls: Answering,
): Error | undefined {
  switch (message.rpc) {
    case "notice":
      return deliver(protocol.toServer, onNotice, message);
    case "cancel":
      calls.cancel(message.id);
      return undefined;
    case "call":
      if (own(protocol.calls, message.name)?.request(message.body) !== true) {
        return unfit(`a call of ${message.name}`);
      }
      void calls.answer(message.id, message.name, message.body);
      return undefined;
    default:
      return assertNever(message);
  }
}

function contextOf(call: CallUnderWay, send: RpcContext<unknown>["send"]): RpcContext<unknown> {
  return {
    isCancelled: () => call.isCancelled,
    onCancel(listener) {
      call.onCancel = listener;
    },
    send,
  };
}

function cancel(call: CallUnderWay | undefined): void {
  if (call !== undefined) {
    call.isCancelled = true;
    call.onCancel?.();
  }
}

/** One end of a channel between two threads: a worker or a message port of Node. */
export interface WorkerPort {
  postMessage(message: unknown, transfer?: readonly object[]): void;
  /**
   * Listens to an event: `message`; `close` or `exit` (the other end is gone); `error` (it broke); `messageerror` (a
   * message could not be read).
   */
  on(event: string, listener: (message: unknown) => void): unknown;
}

/**
 * Returns the error to end with when a worker thread broke: MEMORY if its heap reached the limit that Node sets for
 * each thread; any other reason is a bug.
 * @param doing the act that the message begins with
 */
function brokenThread(doing: string, cause: unknown): Error {
  return errnoOf(cause) === "ERR_WORKER_OUT_OF_MEMORY"
    ? new JobError("MEMORY", `${doing}: a worker thread reached its memory limit`, {
        hint: "give each thread of Node more memory, such as NODE_OPTIONS=--max-old-space-size=8192 (MiB), or lower engine.batch_size; then run the same command again",
        cause,
      })
    : new Error(`${doing}: a worker thread broke`, { cause });
}

/** Resolves when a worker has ended, whether it broke or not; of a message port, when it is closed. */
export async function untilExit(worker: WorkerPort): Promise<void> {
  worker.on("error", () => {}); // without a listener, the error would end this process; the exit follows
  await new Promise<void>((resolve) => {
    for (const event of ["exit", "close"]) {
      worker.on(event, () => {
        resolve();
      });
    }
  });
}
