import { connect, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { BrokenTransfer } from "./http-failures.js";
import type { TlsSettings } from "./request.js";

/** The server that a connection leads to. */
export interface Origin {
  readonly secure: boolean;
  readonly host: string;
  readonly port: number;
}

/** Receives the response to one request. */
export interface ResponseListener {
  /** Called with each chunk; `bytes` are overwritten after it returns. */
  onData(bytes: Buffer): void;
  /** Called once, when the socket failed or the server ended the connection (`error` is undefined). */
  onClose(error?: Error): void;
}

/** An HTTP/1.1 connection that receives into one buffer of its own. */
export interface Connection {
  /** Whether an earlier request used this connection: the server may have closed it since. */
  readonly isReused: boolean;
  /** Sends a request: its head, and the pieces of its body. `listener` receives all bytes from now on. */
  send(head: string, body: readonly Uint8Array[], listener: ResponseListener): void;
  /** Returns the connection to the pool, after a complete response. */
  release(): void;
  destroy(): void;
}

/** Keep-alive connections to any number of servers. Disposing destroys all of them, those in use included. */
export interface ConnectionPool extends Disposable {
  /** Returns an idle connection to `origin`, or opens a new one; with `forceNew` always a new one. */
  acquire(origin: Origin, options?: { readonly forceNew?: boolean }): Connection;
}

/**
 * The receive buffer of a connection. Node's streams allocate a buffer for each chunk: at 500 MB/s allocating and
 * collecting them costs more than receiving the bytes.
 */
const bufferBytes = 256 * 1024;

/** Idle connections are closed after this time: stores close theirs later, and a request sent then would be lost. */
const idleMs = 4000;

/** Opens an empty pool. A connection that is not established within `connectMs` fails with a BrokenTransfer. */
export function openConnectionPool(connectMs: number, tls: TlsSettings = {}): ConnectionPool {
  /** In the order of their last use. */
  const idle: PooledConnection[] = [];
  const open = new Set<Socket>();
  const sessions = new Map<string, Buffer>();
  const dial = (origin: Origin): Connection => {
    const key = originText(origin);
    const pooled = openConnection(origin, { connectMs, tls, session: sessions.get(key) }, (connection) => {
      idle.push(connection);
    });
    const { socket } = pooled;
    open.add(socket);
    socket.on("session", (session: Buffer) => sessions.set(key, session));
    socket.once("close", () => {
      open.delete(socket);
      const index = idle.findIndex((one) => one.socket === socket);
      if (index >= 0) {
        idle.splice(index, 1);
      }
    });
    return pooled.connection;
  };
  return {
    acquire(origin, { forceNew = false } = {}) {
      const key = originText(origin);
      const now = performance.now();
      for (const { socket } of idle.filter(({ sinceMs }) => now - sinceMs > idleMs)) {
        socket.destroy();
      }
      const index = idle.findLastIndex((one) => one.key === key && !one.socket.destroyed);
      const [found] = forceNew || index < 0 ? [] : idle.splice(index, 1);
      return found?.connection ?? dial(origin);
    },
    [Symbol.dispose]() {
      for (const socket of open) {
        socket.destroy();
      }
    },
  };
}

interface PooledConnection {
  readonly connection: Connection;
  /** The origin's text. */
  readonly key: string;
  readonly socket: Socket;
  /** When it became idle, by `performance.now`. */
  readonly sinceMs: number;
}

function openConnection(
  origin: Origin,
  { connectMs, tls, session }: { connectMs: number; tls: TlsSettings; session: Buffer | undefined },
  onRelease: (released: PooledConnection) => void,
): PooledConnection {
  const key = originText(origin);
  let listener: ResponseListener | undefined;
  let isReused = false;
  const socket = openSocket(origin, { ...tls, session }, (bytes) => {
    if (listener === undefined) {
      socket.destroy(); // bytes that no request asked for
    } else {
      listener.onData(bytes);
    }
  });
  watchSocket(socket, { origin, connectMs }, (error) => {
    const closed = listener;
    listener = undefined;
    socket.destroy();
    closed?.onClose(error);
  });
  const connection: Connection = {
    get isReused() {
      return isReused;
    },
    send(head, body, to) {
      listener = to;
      socket.cork();
      socket.write(head, "latin1");
      for (const piece of body) {
        socket.write(piece);
      }
      socket.uncork();
    },
    release() {
      listener = undefined;
      isReused = true;
      onRelease({ connection, key, socket, sinceMs: performance.now() });
    },
    destroy() {
      listener = undefined;
      socket.destroy();
    },
  };
  return { connection, key, socket, sinceMs: 0 };
}

/** Calls `onClosed` when a socket ends, fails, or is not connected within `connectMs`. */
function watchSocket(
  socket: Socket,
  { origin, connectMs }: { origin: Origin; connectMs: number },
  onClosed: (error?: Error) => void,
): void {
  const timeout = setTimeout(() => {
    onClosed(new BrokenTransfer(`no connection to ${originText(origin)} within ${connectMs / 1000} s`));
  }, connectMs);
  socket
    .once(origin.secure ? "secureConnect" : "connect", () => {
      clearTimeout(timeout);
    })
    .once("close", () => {
      clearTimeout(timeout);
      onClosed();
    })
    .on("error", onClosed);
}

function openSocket(
  { secure, host, port }: Origin,
  { session, ...tls }: TlsSettings & { readonly session: Buffer | undefined },
  onData: (bytes: Buffer) => void,
): Socket {
  const onread = {
    buffer: Buffer.allocUnsafeSlow(bufferBytes),
    callback(count: number, buffer: Uint8Array): boolean {
      onData(Buffer.from(buffer.buffer, buffer.byteOffset, count));
      return true;
    },
  };
  const options = { host, port, noDelay: true, onread };
  return secure
    ? connectTls({
        ...options,
        ...tls,
        servername: isIP(host) === 0 ? host : "",
        ...(session === undefined ? {} : { session }),
      })
    : connect(options);
}

function originText({ secure, host, port }: Origin): string {
  return `${secure ? "https" : "http"}://${host}:${port}`;
}
