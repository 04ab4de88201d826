import { connect, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { HTTPParser } from "http-parser-js";
import { BrokenTransfer, type TlsSettings } from "./request.js";

/** An HTTP response. */
export interface HttpResponse {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** The first MiB of the body; empty where a function of `onHeaders` received it. */
  readonly body: Buffer;
}

/** A request, and what receives its response. */
export interface ExchangeOptions {
  /** The request up to its body, as it is sent. */
  readonly text: string;
  readonly body?: readonly Uint8Array[];
  /**
   * Called with status and headers; returns a function that receives each chunk of the body, whose bytes are
   * overwritten after it returns, or undefined to have the body collected. An error that either throws ends the exchange.
   */
  readonly onHeaders: (response: Omit<HttpResponse, "body">) => ((chunk: Uint8Array) => void) | undefined;
  /** Called whenever bytes arrive. */
  readonly onData: () => void;
  /** Ends the exchange with its reason. */
  readonly signal: AbortSignal;
  /** How long the exchange may take; default: as long as its signal lets it. */
  readonly timeoutMs?: number;
}

/** The most bytes of a collected body: error responses are short. */
const maxBufferedBytes = 1024 * 1024;

/** A connection from the pool closed before any byte of the response: the server had closed it while it was idle. */
export class StaleConnectionError extends Error {}

/**
 * Sends one request and reads its response. The connection goes back to the pool when the server keeps it open, and is
 * destroyed otherwise.
 * @throws BrokenTransfer, StaleConnectionError, the socket's error, the signal's reason, what the callbacks throw
 */
export async function exchange(connection: Connection, options: ExchangeOptions): Promise<HttpResponse> {
  const { text, body = [], onHeaders, onData, signal } = options;
  return await new Promise<HttpResponse>((resolve, reject) => {
    let hasData = false;
    const fail = (error: unknown): void => {
      disarm();
      connection.destroy();
      reject(error instanceof Error ? error : new Error(String(error)));
    };
    const disarm = armEnd(options, fail);
    const reader = readResponse(onHeaders, (response, isReusable) => {
      disarm();
      if (isReusable) {
        connection.release();
      } else {
        connection.destroy();
      }
      resolve(response);
    });
    if (signal.aborted) {
      fail(signal.reason);
      return;
    }
    connection.send(text, body, {
      onData(bytes) {
        hasData = true;
        onData();
        try {
          reader.read(bytes);
        } catch (error) {
          fail(error);
        }
      },
      onClose(error) {
        if (!hasData && connection.isReused) {
          fail(new StaleConnectionError("the connection was closed while it was idle", { cause: error }));
        } else if (error !== undefined || !reader.finish()) {
          fail(error ?? connectionLost());
        }
      },
    });
  });
}

/** Has an exchange fail when its signal is aborted, or its time is over. Returns what takes this back. */
function armEnd({ signal, timeoutMs }: ExchangeOptions, fail: (error: unknown) => void): () => void {
  const stop = (): void => {
    fail(signal.reason);
  };
  const timer =
    timeoutMs === undefined
      ? undefined
      : setTimeout(() => {
          fail(new BrokenTransfer(`the server was silent for ${timeoutMs / 1000} s`));
        }, timeoutMs);
  signal.addEventListener("abort", stop, { once: true });
  return () => {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  };
}

function connectionLost(): Error {
  return Object.assign(new Error("the connection was closed"), { code: "ECONNRESET" });
}

interface ResponseReader {
  /** Parses the bytes that arrived. @throws BrokenTransfer, what `onHeaders` and the body's receiver throw */
  read(bytes: Buffer): void;
  /** Called when the connection has ended. Returns whether the response is complete. */
  finish(): boolean;
}

/** Parses a response. `onEnd` is called when it is complete; `isReusable`: the connection can carry another request. */
function readResponse(
  onHeaders: ExchangeOptions["onHeaders"],
  onEnd: (response: HttpResponse, isReusable: boolean) => void,
): ResponseReader {
  const parser = new HTTPParser(HTTPParser.RESPONSE);
  let head: Omit<HttpResponse, "body"> = { status: 0, headers: {} };
  let keepAlive = false;
  let isComplete = false;
  /** The offset in memory at which the body's last chunk ends. Bytes after it belong to no request. */
  let bodyEnd = -1;
  const { collect, body } = createBodyBuffer();
  let receiveBody = collect;
  parser[HTTPParser.kOnHeadersComplete] = ({ statusCode, headers, shouldKeepAlive }) => {
    if (!isComplete) {
      head = { status: statusCode, headers: headersOf(headers) };
      keepAlive = shouldKeepAlive;
      receiveBody = (statusCode < 200 ? undefined : onHeaders(head)) ?? collect;
    }
  };
  parser[HTTPParser.kOnBody] = (buffer, offset, length) => {
    const chunk = buffer.subarray(offset, offset + length);
    if (!isComplete) {
      bodyEnd = chunk.byteOffset + chunk.length;
      receiveBody(chunk);
    }
  };
  parser[HTTPParser.kOnMessageComplete] = () => {
    isComplete ||= head.status >= 200; // 1xx: the final response follows
  };
  return {
    read(bytes) {
      bodyEnd = -1;
      const parsed = parser.execute(bytes);
      if (isComplete) {
        onEnd({ ...head, body: body() }, keepAlive && bodyEnd === bytes.byteOffset + bytes.length);
      } else if (typeof parsed !== "number" || !/^\d*$/.test(head.headers["content-length"] ?? "")) {
        throw new BrokenTransfer("the server's response is not HTTP");
      }
    },
    finish() {
      parser.finish();
      if (isComplete) {
        onEnd({ ...head, body: body() }, false);
      }
      return isComplete;
    },
  };
}

/** Collects the first MiB of a body. */
function createBodyBuffer(): { readonly collect: (chunk: Uint8Array) => void; readonly body: () => Buffer } {
  const collected: Buffer[] = [];
  let remaining = maxBufferedBytes;
  return {
    collect(chunk) {
      collected.push(Buffer.from(chunk.subarray(0, Math.max(0, remaining))));
      remaining -= chunk.length;
    },
    body: () => Buffer.concat(collected),
  };
}

function headersOf(pairs: readonly string[]): Record<string, string> {
  const headers = Object.create(null) as Record<string, string>;
  for (let index = 0; index < pairs.length; index += 2) {
    headers[(pairs[index] ?? "").toLowerCase()] = pairs[index + 1] ?? "";
  }
  return headers;
}

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
