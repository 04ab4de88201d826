import { brotliDecompress, gunzip, inflate } from "node:zlib";
import { promisify } from "node:util";
import { exchange, StaleConnectionError } from "../../net/exchange.js";
import { headersNow, withoutValues } from "../../net/http-endpoint.js";
import { BrokenTransfer } from "../../net/http-failures.js";
import { readBody, type ResponseHeaders, sendRequest } from "../../net/request.js";
import { startSilenceTimeout } from "../../net/silence-timeout.js";
import type { EncodedRequest } from "./message.js";
import type { ModelServer } from "./server.js";

/** A response that was read to its end. */
export interface Received {
  readonly status: number;
  readonly headers: ResponseHeaders;
  /** It is no Buffer, whose `slice` does not copy. */
  readonly body: Uint8Array<ArrayBuffer>;
}

/** A request for predictions, ready to be sent. */
interface Post {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: readonly Uint8Array[];
}

/** What a request does when a connection that was used before is closed without an answer. Default: it is sent again. */
export interface PostOptions {
  readonly mayResend?: boolean;
}

/** Asks for predictions. @throws BrokenTransfer after `timeoutMs`, or what `exchange` and `sendRequest` throw */
export async function post(
  server: ModelServer,
  inferUrl: string,
  encoded: EncodedRequest,
  { mayResend = true }: PostOptions = {},
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
      ? await postDirectly(server, { url, headers, body }, mayResend)
      : await postThrough(proxy, server, { url, headers, body });
  return received.status < 300 ? received : withoutCredentials(received, { own, sent: headers });
}

/** Headers of a signature that AWS quotes when it refuses one. */
const signedHeaders = ["authorization", "x-amz-security-token"];

/** Masks credentials in a refusal, which goes into messages, logs and rejected rows. */
function withoutCredentials(
  refused: Received,
  { own, sent }: Readonly<Record<"own" | "sent", Readonly<Record<string, string>>>>,
): Received {
  const said = Buffer.from(refused.body).toString("utf8");
  const signed = Object.fromEntries(signedHeaders.map((name) => [name, sent[name] ?? ""]));
  return { ...refused, body: new TextEncoder().encode(withoutValues(said, { ...own, ...signed })) };
}

/** Sends a request over a connection of the pool: Node's HTTP client takes several times as long. */
async function postDirectly(server: ModelServer, { url, headers, body }: Post, mayResend: boolean): Promise<Received> {
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
  const collect = (chunk: Uint8Array): void => {
    pieces.push(new Uint8Array(chunk)); // a copy: the bytes are overwritten
  };
  const options = { text, body, signal, timeoutMs, onHeaders: () => collect, onData: nothing };
  let response: Awaited<ReturnType<typeof exchange>>;
  try {
    response = await exchange(connections.acquire(origin), options);
  } catch (error) {
    if (!(error instanceof StaleConnectionError)) {
      throw error;
    }
    if (!mayResend) {
      throw new BrokenTransfer(error.message, { cause: error }); // it may have been paid for: the caller counts it
    }
    response = await exchange(connections.acquire(origin, { forceNew: true }), options);
  }
  const { status, headers: received } = response;
  const get = (name: string): string | null => received[name] ?? null;
  return { status, headers: { get }, body: await decompressed(joined(pieces), get("content-encoding")) };
}

const nothing = (): void => undefined;

async function postThrough(proxy: URL, server: ModelServer, { url, headers, body }: Post): Promise<Received> {
  const { signal, timeoutMs, tls } = server;
  // It is not reset: it bounds the whole request.
  using watch = startSilenceTimeout({ signal, silenceMs: timeoutMs });
  const response = await sendRequest(url, { method: "POST", headers, body, signal: watch.signal, proxy, tls });
  const pieces: Uint8Array[] = [];
  for await (const piece of readBody(response, watch.signal)) {
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
async function decompressed(body: Uint8Array<ArrayBuffer>, encoding: string | null): Promise<Uint8Array<ArrayBuffer>> {
  const decode = encoding === null ? undefined : decoders.get(encoding as "gzip");
  return decode === undefined ? body : joined([await decode(body)]);
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
