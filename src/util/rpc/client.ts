import { brokenThread, type WorkerPort } from "../worker-port.js";
import {
  type CallName,
  type Checked,
  deliver,
  isToClient,
  type ItemOf,
  type NoticeHandlers,
  type Operation,
  receivedError,
  type RequestOf,
  type ResultOf,
  type RpcProtocol,
  type Sent,
  type ToClient,
  type ToServer,
  type Transfer,
  unfit,
} from "./protocol.js";

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

export interface RpcClientOptions<P extends RpcProtocol> {
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
      const fault = receive(message, calls.pending, (notice) => deliver(protocol.toClient, onNotice, notice));
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
function receive(
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
