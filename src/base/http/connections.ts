import { HTTPParser } from "http-parser-js";
import { connect, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { BrokenTransfer, startDeadline, tookTooLong } from "./http.js";
import type { TlsSettings } from "./request.js";

/** The server that a connection leads to. */
export interface Origin {
  readonly secure: boolean;
  readonly host: string;
  readonly port: number;
}

/** The server of a URL, or of what has the parts of one. */
export function originOf(url: Pick<URL, "protocol" | "hostname"> & { readonly port?: string | number }): Origin {
  const secure = url.protocol === "https:";
  return { secure, host: url.hostname.replace(/^\[(.*)\]$/, "$1"), port: Number(url.port) || (secure ? 443 : 80) };
}

/** A request up to its body, as it is sent: Latin-1. @param target path and query */
export function requestHead(method: string, target: string, headers: Readonly<Record<string, string>>): string {
  const fields = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  const lines = [`${method} ${target} HTTP/1.1`, ...fields];
  if (lines.some((line) => /[^\t -~\u0080-\u00ff]/.test(line))) {
    throw new Error("a request has characters that HTTP does not allow");
  }
  return `${lines.join("\r\n")}\r\n\r\n`;
}

export interface HttpResponse {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** The first MiB of the body; empty where a function of `onHeaders` received it. */
  readonly body: Buffer;
}

/** A request, and what receives its response. */
export interface Exchange {
  /** The request up to its body: `requestHead`. */
  readonly head: string;
  readonly body?: readonly Uint8Array[] | undefined;
  /**
   * Called with status and headers; returns a function that receives each chunk of the body, whose bytes are
   * overwritten after it returns, or undefined to have the body collected. An error that either throws ends the exchange.
   */
  readonly onHeaders: (response: Omit<HttpResponse, "body">) => ((chunk: Uint8Array) => void) | undefined;
  readonly signal: AbortSignal;
  /** How long the exchange may take; default: as long as its signal lets it. */
  readonly timeoutMs?: number;
  /** Whether it is sent again over a new connection when one that was used before is closed without an answer. */
  readonly mayResend: boolean;
}

/** Keep-alive connections to any number of servers. Disposing destroys all of them, those in use included. */
export interface HttpConnections extends Disposable {
  /**
   * Sends one request and reads its response, over an idle connection or a new one.
   * @throws BrokenTransfer, the socket's error, the signal's reason, what the callbacks throw
   */
  exchange(origin: Origin, exchange: Exchange): Promise<HttpResponse>;
}

interface Connection {
  readonly socket: Socket;
  /** The origin's text. */
  readonly key: string;
  /** Whether an earlier request used it: the server may have closed it since. */
  isReused: boolean;
  /** When it became idle, by `performance.now`. */
  idleSinceMs: number;
  listener: ResponseListener | undefined;
}

interface ResponseListener {
  /** Called with each chunk; `bytes` are overwritten after it returns. */
  onData(bytes: Buffer): void;
  /** Called once, when the socket failed or the server ended the connection (`error` is undefined). */
  onClose(error: Error | undefined): void;
}

/** Node's streams allocate a buffer for each chunk: at 500 MB/s that costs more than receiving the bytes. */
const bufferBytes = 256 * 1024;

/** Idle connections are closed after this time: stores close theirs later, and a request sent then would be lost. */
const idleMs = 4000;

/** The most bytes of a collected body: error responses are short. */
const maxBufferedBytes = 1024 * 1024;

/** A connection closed before any byte of the response: the server had closed it while it was idle. */
class StaleConnection extends BrokenTransfer {}

/** Opens an empty pool. A connection that is not established within `connectMs` fails with a BrokenTransfer. */
export function openConnectionPool(connectMs: number, tls: TlsSettings = {}): HttpConnections {
  /** In the order of their last use. */
  const idle: Connection[] = [];
  const open = new Set<Socket>();
  const sessions = new Map<string, Buffer>();

  const dial = (origin: Origin): Connection => {
    const key = originText(origin);
    const connection = connectTo(origin, connectMs, { ...tls, session: sessions.get(key) });
    const { socket } = connection;
    open.add(socket);
    socket.on("session", (session: Buffer) => sessions.set(key, session));
    socket.once("close", () => {
      open.delete(socket);
      const index = idle.indexOf(connection);
      if (index >= 0) {
        idle.splice(index, 1);
      }
    });
    return connection;
  };

  const takeIdle = (origin: Origin): Connection | undefined => {
    const key = originText(origin);
    const now = performance.now();
    for (const { socket } of idle.filter(({ idleSinceMs }) => now - idleSinceMs > idleMs)) {
      socket.destroy();
    }
    const index = idle.findLastIndex((connection) => connection.key === key && !connection.socket.destroyed);
    return index < 0 ? undefined : idle.splice(index, 1)[0];
  };

  const exchangeOver = async (connection: Connection, exchange: Exchange): Promise<HttpResponse> => {
    const { response, isReusable } = await exchangeOnce(connection, exchange);
    if (isReusable) {
      connection.isReused = true;
      connection.idleSinceMs = performance.now();
      idle.push(connection);
    } else {
      connection.socket.destroy();
    }
    return response;
  };

  return {
    async exchange(origin, exchange) {
      try {
        return await exchangeOver(takeIdle(origin) ?? dial(origin), exchange);
      } catch (error) {
        if (!(error instanceof StaleConnection) || !exchange.mayResend) {
          throw error;
        }
        return await exchangeOver(dial(origin), exchange);
      }
    },
    [Symbol.dispose]() {
      for (const socket of open) {
        socket.destroy();
      }
    },
  };
}

function connectTo(
  origin: Origin,
  connectMs: number,
  { session, ...tls }: TlsSettings & { readonly session: Buffer | undefined },
): Connection {
  const { secure, host, port } = origin;
  const onread = {
    buffer: Buffer.allocUnsafeSlow(bufferBytes),
    callback(count: number, buffer: Uint8Array): boolean {
      if (connection.listener === undefined) {
        connection.socket.destroy(); // bytes that no request asked for
      } else {
        connection.listener.onData(Buffer.from(buffer.buffer, buffer.byteOffset, count));
      }
      return true;
    },
  };
  const options = { host, port, noDelay: true, onread };
  const resumed = session === undefined ? {} : { session };
  const socket = secure
    ? connectTls({ ...options, ...tls, servername: isIP(host) === 0 ? host : "", ...resumed })
    : connect(options);
  const key = originText(origin);
  const connection: Connection = { socket, key, isReused: false, idleSinceMs: 0, listener: undefined };

  const close = (error?: Error): void => {
    const { listener } = connection;
    connection.listener = undefined;
    socket.destroy();
    listener?.onClose(error);
  };
  const timeout = setTimeout(() => {
    close(new BrokenTransfer(`no connection to ${key} within ${connectMs / 1000} s`));
  }, connectMs);
  socket
    .once(secure ? "secureConnect" : "connect", () => {
      clearTimeout(timeout);
    })
    .once("close", () => {
      clearTimeout(timeout);
      close();
    })
    .on("error", close);
  return connection;
}

function originText({ secure, host, port }: Origin): string {
  return `${secure ? "https" : "http"}://${host}:${port}`;
}

/** @returns `isReusable`: the connection can carry another request; an exchange that fails has destroyed it */
async function exchangeOnce(
  connection: Connection,
  { head, body = [], onHeaders, signal, timeoutMs }: Exchange,
): Promise<{ readonly response: HttpResponse; readonly isReusable: boolean }> {
  const { socket } = connection;
  return await new Promise((resolve, reject) => {
    let hasData = false;
    const leave = (): void => {
      connection.listener = undefined;
      deadline?.[Symbol.dispose]();
      signal.removeEventListener("abort", stop);
    };
    const fail = (error: unknown): void => {
      leave();
      socket.destroy();
      reject(error instanceof Error ? error : new Error(String(error)));
    };
    const stop = (): void => {
      fail(signal.reason);
    };
    // A signal of its own would take 30 µs, a third of a small request.
    const deadline = timeoutMs === undefined ? undefined : startDeadline(timeoutMs, () => fail(tookTooLong(timeoutMs)));
    if (signal.aborted) {
      stop();
      return;
    }
    signal.addEventListener("abort", stop, { once: true });

    const reader = readResponse(head.startsWith("HEAD "), onHeaders, (response, isReusable) => {
      leave();
      resolve({ response, isReusable });
    });
    connection.listener = {
      onData(bytes) {
        hasData = true;
        try {
          reader.read(bytes);
        } catch (error) {
          fail(error);
        }
      },
      onClose(error) {
        if (!hasData && connection.isReused) {
          fail(new StaleConnection("the connection was closed while it was idle", { cause: error }));
        } else if (error !== undefined || !reader.finish()) {
          fail(error ?? Object.assign(new Error("the connection was closed"), { code: "ECONNRESET" }));
        }
      },
    };

    socket.cork();
    socket.write(head, "latin1");
    for (const piece of body) {
      socket.write(piece);
    }
    socket.uncork();
  });
}

interface ResponseReader {
  read(bytes: Buffer): void;
  /** Called when the connection has ended. Returns whether the response is complete. */
  finish(): boolean;
}

/** `isReusable`: the connection can carry another request. `isHead`: it has no body, whatever its headers say. */
function readResponse(
  isHead: boolean,
  onHeaders: Exchange["onHeaders"],
  onEnd: (response: HttpResponse, isReusable: boolean) => void,
): ResponseReader {
  const parser = new HTTPParser(HTTPParser.RESPONSE);
  let head: Omit<HttpResponse, "body"> = { status: 0, headers: {} };
  let [keepAlive, isComplete] = [false, false];
  /** Where it ends in the bytes that are parsed. Bytes after it belong to no request. */
  let end = -1;
  const collected: Buffer[] = [];
  let remaining = maxBufferedBytes;
  const collect = (chunk: Uint8Array): void => {
    collected.push(Buffer.from(chunk.subarray(0, Math.max(0, remaining))));
    remaining -= chunk.length;
  };
  let receiveBody = collect;

  parser[HTTPParser.kOnHeadersComplete] = ({ statusCode, headers, shouldKeepAlive }) => {
    if (!isComplete) {
      head = { status: statusCode, headers: headersOf(headers) };
      expectHttp(/^\d*$/.test(head.headers["content-length"] ?? ""));
      keepAlive = shouldKeepAlive;
      receiveBody = (statusCode < 200 ? undefined : onHeaders(head)) ?? collect;
    }
    return isHead && statusCode >= 200 ? 1 : 0; // 1: no body follows
  };
  parser[HTTPParser.kOnBody] = (buffer, offset, length) => {
    expectHttp(length >= 0); // of a chunk of a negative size, the parser would go back and read it for ever
    if (!isComplete) {
      receiveBody(buffer.subarray(offset, offset + length));
    }
  };
  parser[HTTPParser.kOnMessageComplete] = () => {
    expectHttp(!Number.isNaN(Reflect.get(parser, "body_bytes"))); // the parser takes a chunk of an unknown size for the last one
    if (!isComplete && head.status >= 200) {
      // 1xx: the final response follows
      isComplete = true;
      end = Number(Reflect.get(parser, "offset"));
    }
  };

  return {
    read(bytes) {
      const parsed = parser.execute(bytes);
      if (isComplete) {
        onEnd({ ...head, body: Buffer.concat(collected) }, keepAlive && end === bytes.length);
      } else {
        expectHttp(typeof parsed === "number");
      }
    },
    finish() {
      parser.finish();
      if (isComplete) {
        onEnd({ ...head, body: Buffer.concat(collected) }, false);
      }
      return isComplete;
    },
  };
}

function expectHttp(isHttp: boolean): void {
  if (!isHttp) {
    throw new BrokenTransfer("the server's response is not HTTP");
  }
}

function headersOf(pairs: readonly string[]): Record<string, string> {
  const headers = Object.create(null) as Record<string, string>;
  for (let index = 0; index < pairs.length; index += 2) {
    headers[(pairs[index] ?? "").toLowerCase()] = pairs[index + 1] ?? "";
  }
  return headers;
}
