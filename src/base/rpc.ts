/**
 * Calls between two threads. The client calls; the server answers each call with any number of items, then with a result
 * or an error. Either end also sends notices, which are not answered. What a thread of this program sends is trusted.
 */
import { errnoOf, type ErrorCode, JobError, messageOf } from "./errors.js";

/** The calls and notices of two threads by name; the types of what is sent. */
export interface RpcProtocol {
  /** `item`: what comes before the result. */
  readonly calls: Readonly<
    Record<string, { readonly request: unknown; readonly item?: unknown; readonly result: unknown }>
  >;
  readonly toServer: Readonly<Record<string, unknown>>;
  readonly toClient: Readonly<Record<string, unknown>>;
}

type Name<Messages> = keyof Messages & string;
type NoticeHandlers<Notices> = { readonly [K in keyof Notices]: (body: Notices[K]) => void };
type Transfer = readonly object[];

/** What is sent, and which of its buffers and ports move to the other thread. */
export interface Sent<T> {
  readonly body: T;
  readonly transfer?: Transfer;
}

interface Notice {
  readonly rpc: "notice";
  readonly name: string;
  readonly body: unknown;
}

/** @public so that tests stand in for a thread */
export type ToServer =
  | Notice
  | { readonly rpc: "call"; readonly id: number; readonly name: string; readonly body: unknown }
  | { readonly rpc: "cancel"; readonly id: number };

/** @public so that tests stand in for a thread */
export type ToClient =
  | Notice
  | { readonly rpc: "item"; readonly id: number; readonly body: unknown }
  | { readonly rpc: "result"; readonly id: number; readonly body: unknown }
  | { readonly rpc: "error"; readonly id: number; readonly error: SentError };

/** One end of a channel between two threads: a worker or a message port of Node. */
export interface WorkerPort {
  postMessage(message: unknown, transfer?: readonly object[]): void;
  /**
   * Listens to an event: `message`; `close` or `exit` (the other end is gone); `error` (it broke); `messageerror` (a
   * message could not be read).
   */
  on(event: string, listener: (message: unknown) => void): unknown;
}

/** A call under way. */
export interface RpcCall<T> {
  /** Rejects with the server's error, or with why there will be no answer. */
  readonly result: Promise<T>;
  /** Cancels the call. It is settled nevertheless, once the server has stopped. */
  readonly cancel: () => void;
}

export interface RpcClient<P extends RpcProtocol> {
  readonly pending: number;
  /** The error after which no call is answered. */
  readonly broken: Error | undefined;
  /** @param onItem called with each item, in order */
  call<K extends Name<P["calls"]>>(
    name: K,
    request: Sent<P["calls"][K]["request"]>,
    onItem?: (item: P["calls"][K]["item"]) => void,
  ): RpcCall<P["calls"][K]["result"]>;
  notify<K extends Name<P["toServer"]>>(name: K, notice: Sent<P["toServer"][K]>): void;
}

interface RpcClientOptions<P extends RpcProtocol> {
  /** What the server does, as messages begin: "reading from S3". */
  readonly doing: string;
  readonly onNotice: NoticeHandlers<P["toClient"]>;
  /** Called once, before all calls are rejected: the other end is gone. */
  readonly onBroken?: (error: Error) => void;
}

interface Pending {
  readonly onItem: ((item: unknown) => void) | undefined;
  resolve(result: unknown): void;
  reject(error: Error): void;
}

export function openRpcClient<P extends RpcProtocol>(
  port: WorkerPort,
  { doing, onNotice, onBroken }: RpcClientOptions<P>,
): RpcClient<P> {
  const pending = new Map<number, Pending>();
  let nextId = 0;
  let broken: Error | undefined;
  const post = (message: ToServer, transfer: Transfer = []): void => {
    port.postMessage(message, transfer);
  };
  const fail = (error: Error): void => {
    if (broken === undefined) {
      broken = error;
      onBroken?.(error);
      for (const call of pending.values()) {
        call.reject(error);
      }
      pending.clear();
    }
  };

  port.on("message", (received) => {
    const message = received as ToClient;
    if (message.rpc === "notice") {
      onNotice[message.name]?.(message.body as never);
      return;
    }
    const call = pending.get(message.id);
    if (message.rpc === "item") {
      call?.onItem?.(message.body);
      return;
    }
    pending.delete(message.id);
    if (message.rpc === "result") {
      call?.resolve(message.body);
    } else {
      call?.reject(receivedError(message.error));
    }
  });
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

  return {
    get pending() {
      return pending.size;
    },
    get broken() {
      return broken;
    },
    call(name, { body, transfer }, onItem) {
      const id = nextId;
      nextId += 1;
      const result = new Promise<never>((resolve, reject) => {
        if (broken !== undefined) {
          reject(broken); // a thread that has ended would never answer
          return;
        }
        post({ rpc: "call", id, name, body }, transfer);
        pending.set(id, { onItem, resolve, reject });
      });
      return {
        result,
        cancel() {
          post({ rpc: "cancel", id });
        },
      };
    },
    notify(name, { body, transfer }) {
      post({ rpc: "notice", name, body }, transfer);
    },
  };
}

/** Sends a notice to a server without listening for its answers. */
export function notifyServer<P extends RpcProtocol>(port: WorkerPort, name: Name<P["toServer"]>): void {
  port.postMessage({ rpc: "notice", name, body: undefined } satisfies ToServer);
}

/** The server's side of one call. */
export interface RpcContext<Item> {
  readonly isCancelled: () => boolean;
  readonly onCancel: (handler: () => void) => void;
  readonly send: (item: Sent<Item>) => void;
}

export interface RpcHandlers<P extends RpcProtocol> {
  readonly calls: {
    readonly [K in Name<P["calls"]>]: (
      request: P["calls"][K]["request"],
      context: RpcContext<P["calls"][K]["item"]>,
    ) => Promise<Sent<P["calls"][K]["result"]>>;
  };
  readonly onNotice: NoticeHandlers<P["toServer"]>;
}

interface RpcServer<P extends RpcProtocol> {
  notify<K extends Name<P["toClient"]>>(name: K, notice: Sent<P["toClient"][K]>): void;
}

/** Answers calls as they come: a handler that serves one after the other queues them itself. */
export function serveRpc<P extends RpcProtocol>(port: WorkerPort, { calls, onNotice }: RpcHandlers<P>): RpcServer<P> {
  const underWay = new Map<number, { isCancelled: boolean; onCancel: (() => void) | undefined }>();
  const post = (message: ToClient, transfer: Transfer = []): void => {
    port.postMessage(message, transfer);
  };
  const answer = async (id: number, name: Name<P["calls"]>, request: unknown): Promise<void> => {
    const call = { isCancelled: false, onCancel: undefined as (() => void) | undefined };
    underWay.set(id, call);
    const context: RpcContext<unknown> = {
      isCancelled: () => call.isCancelled,
      onCancel(handler) {
        call.onCancel = handler;
      },
      send({ body, transfer }) {
        post({ rpc: "item", id, body }, transfer);
      },
    };
    try {
      const { body, transfer } = await calls[name](request, context);
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
  port.on("message", (received) => {
    const message = received as ToServer;
    if (message.rpc === "call") {
      void answer(message.id, message.name, message.body);
    } else if (message.rpc === "notice") {
      onNotice[message.name]?.(message.body as never);
    } else {
      const call = underWay.get(message.id);
      if (call !== undefined) {
        call.isCancelled = true;
        call.onCancel?.();
      }
    }
  });
  return {
    notify(name, { body, transfer }) {
      post({ rpc: "notice", name, body }, transfer);
    },
  };
}

/** An error as it is sent to another thread: a structured clone would lose its class and its code. */
interface SentError {
  readonly message: string;
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

function receivedError({ job, message, errno, stack, cause }: SentError): Error {
  const options = cause === undefined ? {} : { cause: new Error(cause) };
  if (job !== undefined) {
    return new JobError(job.code, message, { ...options, ...(job.hint === undefined ? {} : { hint: job.hint }) });
  }
  const error = new Error(message, options);
  return Object.assign(error, errno === undefined ? {} : { code: errno }, stack === undefined ? {} : { stack });
}

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
