import { type IncomingMessage, request as httpRequest, type RequestOptions } from "node:http";
import { request as httpsRequest } from "node:https";
import { isIP, type Socket } from "node:net";
import type { Readable } from "node:stream";
import { connect as tlsConnect } from "node:tls";
import { createBrotliDecompress, createGunzip, createInflate } from "node:zlib";

/** How a server's certificate is checked, and what is shown to it. */
export interface TlsSettings {
  /** Certificates of authorities in PEM, used instead of Node's. */
  readonly ca?: string | undefined;
  readonly rejectUnauthorized?: boolean | undefined;
  /** The certificate of this client in PEM, and its private key. */
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

export interface HttpRequest {
  readonly method: "GET" | "HEAD" | "POST";
  /** The pieces of the body. A request with a body needs a header `content-length`. */
  readonly body?: readonly Uint8Array[] | undefined;
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
  /** The proxy; undefined: the request goes directly to the server. */
  readonly proxy: URL | undefined;
  readonly tls: TlsSettings;
}

/** Reads headers of a response by their names in lower case. */
export type ResponseHeaders = Pick<Headers, "get">;

/** A response whose body is not read yet. */
export interface OpenResponse {
  readonly status: number;
  readonly headers: ResponseHeaders;
  readonly url: URL;
  /** The body, decompressed. Read it, or destroy it. */
  readonly body: Readable;
}

/** The error for a proxy that refuses to connect to the server. */
export class RefusingProxyError extends Error {
  readonly status: number;

  constructor(proxy: URL, status: number) {
    super(`the proxy ${proxy.origin} answered ${status}`);
    this.status = status;
  }
}

/**
 * Sends a request and returns the headers of the answer; redirects are not followed. Node's `fetch` is not used: it
 * takes neither a proxy nor a certificate of an authority before Node 24.
 * @throws the signal's reason, RefusingProxyError, or a system error
 */
export async function sendRequest(url: URL, request: HttpRequest): Promise<OpenResponse> {
  const { proxy, signal, tls, body } = request;
  try {
    const options = { method: request.method, headers: { ...request.headers }, signal };
    const response =
      proxy === undefined
        ? await answerTo(url, { ...options, ...tls }, body)
        : url.protocol === "https:"
          ? await answerTo(url, { ...options, ...(await throughTunnel(url, { proxy, signal, tls })) }, body)
          : await answerTo(proxy, viaProxy(url, proxy, options), body);
    const { headers: received } = response;
    // Node's `Headers` would load the whole of `fetch`.
    const headers = { get: (name: string) => received[name]?.toString() ?? null };
    return {
      status: response.statusCode ?? 0,
      headers,
      url,
      body: decompressed(response, received["content-encoding"] ?? ""),
    };
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  }
}

/** Reads a body. @throws the signal's reason, or a system error if the connection is lost */
export async function* readBody({ body }: OpenResponse, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  try {
    yield* body as AsyncIterable<Uint8Array>;
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  }
}

function answerTo(
  url: URL,
  options: RequestOptions & TlsSettings,
  body: readonly Uint8Array[] = [],
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const send = url.protocol === "https:" ? httpsRequest : httpRequest;
    const request = send(url, options);
    request.once("response", (response) => {
      request.once("error", (error) => response.destroy(error)); // else a body without length would count as complete
      resolve(response);
    });
    request.on("error", reject);
    // One whose answer changes the protocol (101) ends without either.
    request.once("close", () => reject(Object.assign(new Error("no answer came"), { code: "ECONNRESET" })));
    for (const piece of body) {
      request.write(piece);
    }
    request.end();
  });
}

/** Its first line contains the server's URL. */
function viaProxy(
  url: URL,
  proxy: URL,
  { headers, ...options }: Pick<HttpRequest, "method" | "headers" | "signal">,
): RequestOptions {
  return {
    ...options,
    path: url.href,
    headers: { ...headers, host: url.host, ...loginTo(proxy) },
    agent: false,
  };
}

async function throughTunnel(
  url: URL,
  { proxy, signal, tls }: Pick<HttpRequest, "signal" | "tls"> & { readonly proxy: URL },
): Promise<RequestOptions> {
  const port = url.port === "" ? "443" : url.port;
  const socket = await new Promise<Socket>((resolve, reject) => {
    const send = proxy.protocol === "https:" ? httpsRequest : httpRequest;
    const path = `${url.hostname}:${port}`;
    send(proxy, { method: "CONNECT", path, headers: { host: path, ...loginTo(proxy) }, signal, agent: false })
      .once("connect", (answer, opened) => {
        if (answer.statusCode === 200) {
          resolve(opened);
        } else {
          opened.destroy();
          reject(new RefusingProxyError(proxy, answer.statusCode ?? 0));
        }
      })
      .on("error", reject)
      .end();
  });
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  const servername = isIP(host) === 0 ? host : ""; // TLS has no field for an address
  // Without an agent, which would make a connection of its own.
  return { createConnection: () => tlsConnect({ socket, host, servername, ...tls }) };
}

function loginTo({ username, password }: URL): { readonly "proxy-authorization"?: string } {
  const login = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return username === "" ? {} : { "proxy-authorization": `Basic ${Buffer.from(login).toString("base64")}` };
}

/**
 * Decompresses a body. The request asks for no compression, but some servers store files compressed and send them like
 * that.
 */
export function decompressed(body: Readable, encoding: string): Readable {
  const decoder = decoders.get(encoding);
  if (decoder === undefined) {
    return body;
  }
  const plain = decoder();
  body.once("error", (error) => plain.destroy(error));
  return body.pipe(plain);
}

const decoders: ReadonlyMap<string, () => ReturnType<typeof createGunzip>> = new Map([
  ["gzip", createGunzip],
  ["x-gzip", createGunzip],
  ["deflate", createInflate],
  ["br", createBrotliDecompress],
]);
