import { brotliDecompress, gunzip, inflate } from "node:zlib";
import { promisify } from "node:util";
import { headersNow, withoutValues } from "../../net/http-endpoint.js";
import { readBody, type ResponseHeaders, sendRequest } from "../../net/request.js";
import { startSilenceTimeout } from "../../net/silence-timeout.js";
import { errnoOf } from "../../util/errors.js";
import { type EncodedRequest, ServerFault } from "./protocol.js";
import type { ModelServer } from "./server.js";

/** A response that was read to its end. */
export interface Received {
  readonly status: number;
  readonly headers: ResponseHeaders;
  /** It is no Buffer, whose `slice` does not copy. */
  readonly body: Uint8Array<ArrayBuffer>;
  /** The body as text for messages, logs and rejected rows: without credentials that the server quotes. */
  readonly said: () => string;
}

/** A request for predictions, ready to be sent. */
interface Post {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: readonly Uint8Array[];
}

/** Bytes of an answer, besides the values that it must have: more than any server needs to describe them. */
export const usualAnswerBytes = 64 * 1024 * 1024;

export interface PostOptions {
  /** Whether it is sent again when a connection that was used before is closed without an answer. */
  readonly mayResend: boolean;
  /** The most bytes of an answer. */
  readonly mostBytes: number;
}

/**
 * Asks for predictions.
 * @throws BrokenTransfer after `timeoutMs`; ServerFault for a larger answer; what `connections` and `sendRequest` throw
 */
export async function post(
  server: ModelServer,
  inferUrl: string,
  encoded: EncodedRequest,
  options: PostOptions,
): Promise<Received> {
  const { findProxy, sign } = server;
  const { body } = encoded;
  const url = new URL(inferUrl);
  const own = await headersNow(server.headers);
  const plain = { ...own, ...encoded.headers };
  const headers = sign === undefined ? plain : await sign({ method: "POST", url, headers: plain, body });
  const proxy = findProxy(url);
  const received =
    proxy === undefined
      ? await postDirectly(server, { url, headers, body }, options)
      : await postThrough(proxy, server, { url, headers, body }, options);
  const credentials = { ...own, ...server.hidden, ...signatureIn(headers) };
  return { ...received, said: () => withoutValues(Buffer.from(received.body).toString("utf8"), credentials) };
}

/** Headers of a signature that AWS quotes when it refuses one. */
const signedHeaders = ["authorization", "x-amz-security-token"];

function signatureIn(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(signedHeaders.map((name) => [`signed ${name}`, headers[name] ?? ""]));
}

type Answered = Omit<Received, "said">;

/** Sends a request over a connection of the pool: Node's HTTP client takes several times as long. */
async function postDirectly(
  server: ModelServer,
  { url, headers, body }: Post,
  { mayResend, mostBytes }: PostOptions,
): Promise<Answered> {
  const { connections, signal, timeoutMs } = server;
  const secure = url.protocol === "https:";
  const port = url.port === "" ? (secure ? 443 : 80) : Number(url.port);
  const origin = { secure, host: url.hostname.replace(/^\[(.*)\]$/, "$1"), port };
  let text = `POST ${url.pathname}${url.search} HTTP/1.1\r\nhost: ${url.host}\r\n`;
  for (const [name, value] of Object.entries(headers)) {
    text += `${name}: ${value}\r\n`;
  }
  text += "\r\n";
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  const collect = (chunk: Uint8Array): void => {
    size += chunk.length;
    refuseLarger(size, mostBytes);
    pieces.push(new Uint8Array(chunk)); // a copy: the bytes are overwritten
  };
  const exchange = { text, body, signal, timeoutMs, mayResend, onHeaders: () => collect, onData: nothing };
  const { status, headers: received } = await connections.exchange(origin, exchange);
  const get = (name: string): string | null => received[name] ?? null;
  return { status, headers: { get }, body: await decompressed(joined(pieces), get("content-encoding"), mostBytes) };
}

const nothing = (): void => undefined;

function refuseLarger(size: number, mostBytes: number): void {
  if (size > mostBytes) {
    throw new ServerFault(
      `the answer has more than ${Math.floor(mostBytes / 2 ** 20)} MiB, far more than was asked for`,
    );
  }
}

async function postThrough(
  proxy: URL,
  server: ModelServer,
  { url, headers, body }: Post,
  { mostBytes }: PostOptions,
): Promise<Answered> {
  const { signal, timeoutMs, tls } = server;
  // It is not reset: it bounds the whole request.
  using watch = startSilenceTimeout({ signal, silenceMs: timeoutMs });
  const response = await sendRequest(url, { method: "POST", headers, body, signal: watch.signal, proxy, tls });
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of readBody(response, watch.signal)) {
    size += piece.length;
    refuseLarger(size, mostBytes);
    pieces.push(piece);
  }
  return { status: response.status, headers: response.headers, body: joined(pieces) };
}

const decoders = new Map([
  ["gzip", promisify(gunzip)],
  ["x-gzip", promisify(gunzip)],
  ["deflate", promisify(inflate)],
  ["br", promisify(brotliDecompress)],
] as const);

/** The request asks for no compression, but a proxy in front of the server may compress anyway. */
async function decompressed(
  body: Uint8Array<ArrayBuffer>,
  encoding: string | null,
  mostBytes: number,
): Promise<Uint8Array<ArrayBuffer>> {
  const decode = encoding === null ? undefined : decoders.get(encoding as "gzip");
  if (decode === undefined) {
    return body;
  }
  try {
    return joined([await decode(body, { maxOutputLength: mostBytes })]);
  } catch (error) {
    refuseLarger(errnoOf(error) === "ERR_BUFFER_TOO_LARGE" ? Number.POSITIVE_INFINITY : 0, mostBytes);
    throw error;
  }
}

/** The pieces as one array. */
function joined(pieces: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const [first] = pieces;
  if (pieces.length === 1 && first !== undefined && first.constructor === Uint8Array) {
    return first as Uint8Array<ArrayBuffer>;
  }
  const bytes = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}

/** Whether the server answers 200 at a URL. */
export async function isReady(server: ModelServer, readyUrl: string): Promise<boolean> {
  const { headers, findProxy, signal, timeoutMs, tls } = server;
  const url = new URL(readyUrl);
  using watch = startSilenceTimeout({ signal, silenceMs: timeoutMs });
  try {
    const send = { headers: await headersNow(headers), signal: watch.signal, proxy: findProxy(url), tls };
    const response = await sendRequest(url, { method: "GET", ...send });
    response.body.resume();
    return response.status === 200;
  } catch {
    signal.throwIfAborted();
    return false;
  }
}
