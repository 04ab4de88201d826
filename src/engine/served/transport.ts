import { Readable } from "node:stream";
import { originOf, requestHead } from "../../net/connections.js";
import { headersNow, startTimeout, tookTooLong, withoutValues } from "../../net/http.js";
import { decompressed, type HttpRequest, readBody, type ResponseHeaders, sendRequest } from "../../net/request.js";
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
  const { body } = encoded;
  const url = new URL(inferUrl);
  const own = await headersNow(server.headers);
  const plain = { ...own, ...encoded.headers };
  const headers = (await server.sign?.({ method: "POST", url, headers: plain, body })) ?? plain;

  const proxy = server.findProxy(url);
  const answer =
    proxy === undefined
      ? await postDirectly(server, url, { headers, body }, options)
      : await postThrough(server, url, { headers, body, proxy }, options.mostBytes);

  // AWS quotes these headers of a signature when it refuses one.
  const signed = { login: headers["authorization"] ?? "", token: headers["x-amz-security-token"] ?? "" };
  const credentials = { ...own, ...server.hidden, ...signed };
  return { ...answer, said: () => withoutValues(Buffer.from(answer.body).toString("utf8"), credentials) };
}

/** Sends a request over a connection of the pool: Node's HTTP client takes several times as long. */
async function postDirectly(
  { connections, signal, timeoutMs }: ModelServer,
  url: URL,
  { headers, body }: Pick<HttpRequest, "headers" | "body">,
  { mayResend, mostBytes }: PostOptions,
): Promise<Omit<Received, "said">> {
  const head = requestHead("POST", `${url.pathname}${url.search}`, { host: url.host, ...headers });
  const { collect, collected } = createCollector(mostBytes);
  const onHeaders = (): ((chunk: Uint8Array) => void) => (chunk) => collect(new Uint8Array(chunk)); // it is overwritten
  const exchange = { head, body, signal, timeoutMs, mayResend, onHeaders };
  const { status, headers: received } = await connections.exchange(originOf(url), exchange);

  const get = (name: string): string | null => received[name] ?? null;
  const encoding = get("content-encoding");
  const sent = collected();
  // The request asks for no compression, but a proxy in front of the server may compress anyway.
  const plain = encoding === null ? sent : await readAll(decompressed(Readable.from([sent]), encoding), mostBytes);
  return { status, headers: { get }, body: plain };
}

async function postThrough(
  { signal, timeoutMs, tls }: ModelServer,
  url: URL,
  request: Pick<HttpRequest, "headers" | "body" | "proxy">,
  mostBytes: number,
): Promise<Omit<Received, "said">> {
  using watch = startTimeout(signal, timeoutMs, tookTooLong);
  const response = await sendRequest(url, { method: "POST", ...request, signal: watch.signal, tls });
  const { status, headers } = response;
  return { status, headers, body: await readAll(readBody(response, watch.signal), mostBytes) };
}

async function readAll(pieces: AsyncIterable<Uint8Array>, mostBytes: number): Promise<Uint8Array<ArrayBuffer>> {
  const { collect, collected } = createCollector(mostBytes);
  for await (const piece of pieces) {
    collect(piece);
  }
  return collected();
}

/** Collects pieces as one array. `collect` throws ServerFault beyond `mostBytes`. */
function createCollector(mostBytes: number): {
  readonly collect: (piece: Uint8Array) => void;
  readonly collected: () => Uint8Array<ArrayBuffer>;
} {
  const pieces: Uint8Array[] = [];
  let size = 0;
  return {
    collect(piece) {
      size += piece.length;
      if (size > mostBytes) {
        const mebibytes = Math.floor(mostBytes / 2 ** 20);
        throw new ServerFault(`the answer has more than ${mebibytes} MiB, far more than was asked for`);
      }
      pieces.push(piece);
    },
    collected() {
      const [first] = pieces;
      if (pieces.length === 1 && first?.constructor === Uint8Array) {
        return first as Uint8Array<ArrayBuffer>;
      }
      const bytes = new Uint8Array(size);
      let at = 0;
      for (const piece of pieces) {
        bytes.set(piece, at);
        at += piece.length;
      }
      return bytes;
    },
  };
}
