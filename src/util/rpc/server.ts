import { assertNever } from "../errors.js";
import type { WorkerPort } from "../worker-port.js";
import {
  type CallName,
  type Checked,
  deliver,
  isToServer,
  type ItemOf,
  type NoticeHandlers,
  own,
  type RequestOf,
  type ResultOf,
  type RpcProtocol,
  type Sent,
  sentError,
  type ToClient,
  type ToServer,
  type Transfer,
  unfit,
} from "./protocol.js";

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

export interface RpcServer<P extends RpcProtocol> {
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
    const fault = receive(message, protocol, handlers.onNotice, { answer, cancel: (id) => cancel(underWay.get(id)) });
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
function receive<P extends RpcProtocol>(
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
