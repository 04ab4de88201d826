import { readBody, sendRequest } from "../../net/request.js";
import { startWatch } from "../../net/watch.js";
import type { EncodedRequest } from "./message.js";
import type { ModelServer } from "./server.js";

/** A response that was read to its end. */
export interface Received {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Uint8Array<ArrayBuffer>;
}

/** Asks for predictions. @throws BrokenTransfer after `timeoutMs`, or what `sendRequest` throws */
export async function post(server: ModelServer, inferUrl: string, encoded: EncodedRequest): Promise<Received> {
  const { findProxy, connections, signal, timeoutMs, tls, sign } = server;
  const { body } = encoded;
  const url = new URL(inferUrl);
  const headers = { ...server.headers, ...encoded.headers };
  // It is not reset: it bounds the whole request.
  using watch = startWatch({ signal, silenceMs: timeoutMs });
  const response = await sendRequest(url, {
    method: "POST",
    headers: sign === undefined ? headers : await sign({ method: "POST", url, headers, body }),
    body,
    signal: watch.signal,
    proxy: findProxy(url),
    tls,
    connections,
  });
  const pieces: Uint8Array[] = [];
  for await (const piece of readBody(response, watch.signal)) {
    pieces.push(piece);
  }
  const { status } = response;
  return { status, headers: response.headers, body: joined(pieces) };
}

/** The pieces as one array. It is no Buffer, whose `slice` does not copy. */
function joined(pieces: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
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
  const { headers, findProxy, signal, timeoutMs, connections, tls } = server;
  const url = new URL(readyUrl);
  using watch = startWatch({ signal, silenceMs: timeoutMs });
  const send = { headers, signal: watch.signal, proxy: findProxy(url), tls, connections };
  try {
    const response = await sendRequest(url, { method: "GET", ...send });
    response.body.resume();
    return response.status === 200;
  } catch {
    signal.throwIfAborted();
    return false;
  }
}
