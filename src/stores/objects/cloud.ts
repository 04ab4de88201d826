/**
 * What stores share whose requests are plain HTTP: requests over pooled connections, tokens that are renewed before they
 * expire, and the meaning of a status.
 */
import { createHash } from "node:crypto";
import type { Readable } from "node:stream";
import {
  type HttpConnections,
  type Exchange,
  openConnectionPool,
  originOf,
  requestHead,
} from "../../base/http/connections.js";
import { startSilenceTimeout } from "../../base/http/http.js";
import { JobError } from "../../base/errors.js";
import {
  ChangedBody,
  classifyUnanswered,
  CredentialsError,
  type ObjectCall,
  type ObjectFailure,
  permanent,
  type SentBody,
} from "./protocol.js";
import type { RequestOptions } from "./store.js";

/** How to reach one store. */
export interface CloudOptions extends RequestOptions {
  /** URL of a store that is not the cloud's own. */
  readonly endpoint: string | undefined;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** A request that may still lack what authorizes it. */
export interface CloudRequest {
  readonly method: "GET" | "HEAD" | "POST" | "PUT" | "DELETE";
  /** Its path may be the beginning of the request's. */
  readonly base: URL;
  /** Percent-encoded. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  /** Names in lower case. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
  /** Whose credentials authorize it, where that is not the same for all; default: it is. */
  readonly account?: string;
}

export interface CloudResponse {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

/**
 * Sends one request with what authorizes it.
 * @param expected statuses that are an answer, beside 2xx
 * @param onHeaders as in `Exchange`: then the body of a success is not collected
 * @throws Refusal; what a connection throws; CredentialsError
 */
export type Ask = (
  request: CloudRequest,
  signal: AbortSignal,
  options?: { readonly expected?: readonly number[]; readonly onHeaders?: Exchange["onHeaders"] },
) => Promise<CloudResponse>;

/** What a store authorizes requests by. */
export interface Authority {
  /** Adds what authorizes a request. `ask` sends requests for tokens. */
  readonly authorize: (request: CloudRequest, ask: AskPlainly) => Promise<CloudRequest>;
  /** Forgets tokens, since they were refused. */
  readonly forget: () => void;
}

/** Sends a request as it is, whatever its status. */
export type AskPlainly = (request: CloudRequest, timeoutMs?: number) => Promise<CloudResponse>;

/** A response that is no success. */
export class StoreRefusal extends Error {
  readonly status: number;
  /** The store's name of the error; "" where it has none. */
  readonly code: string;

  constructor(status: number, code: string, said: string) {
    super(said);
    this.status = status;
    this.code = code;
  }
}

/** Opens the way to a store. @param readError reads the name of an error and the text about it */
export function openCloud(
  { timeouts, signal }: CloudOptions,
  authority: Authority,
  readError: (response: CloudResponse) => { readonly code: string; readonly said: string },
): { readonly ask: Ask } & Disposable {
  const pool = openConnectionPool(timeouts.connectMs);
  return {
    async ask(request, ended, { expected = [], onHeaders } = {}) {
      const authorized = await authority.authorize(
        request,
        (plain, timeoutMs = timeouts.silenceMs) => exchange(pool, plain, signal, { timeoutMs }), // others wait for the token, too: it does not end with this call
      );
      requirePrivate(authorized);
      const response = await exchange(pool, authorized, ended, { silenceMs: timeouts.silenceMs, onHeaders });
      if ((response.status >= 200 && response.status < 300) || expected.includes(response.status)) {
        return response;
      }
      const { code, said } = readError(response);
      throw new StoreRefusal(response.status, code, said);
    },
    [Symbol.dispose]: () => pool[Symbol.dispose](),
  };
}

/** @throws CredentialsError where a token would be read on its way: whoever has it is whom it names */
function requirePrivate({ base, headers = {} }: CloudRequest): void {
  const isHere = /^(?:localhost|127\.[\d.]+|\[::1\])$/.test(base.hostname);
  if (headers["authorization"]?.startsWith("Bearer ") === true && base.protocol === "http:" && !isHere) {
    throw new CredentialsError(
      `no token is sent to ${base.origin}: it would be readable on its way`,
      "name an endpoint that begins with https://",
    );
  }
}

/** A body that leaves at once. */
const smallBytes = 64 * 1024;

async function exchange(
  pool: HttpConnections,
  { method, base, path, query = {}, headers = {}, body }: CloudRequest,
  signal: AbortSignal,
  {
    onHeaders,
    silenceMs,
    timeoutMs,
  }: {
    readonly onHeaders?: Exchange["onHeaders"] | undefined;
    readonly silenceMs?: number;
    readonly timeoutMs?: number;
  },
): Promise<CloudResponse> {
  const fields = Object.entries(query).map(([name, value]) => `${percentEncode(name)}=${percentEncode(value)}`);
  const target = `${base.pathname.replace(/\/$/, "")}${path}${fields.length === 0 ? "" : `?${fields.join("&")}`}`;
  const isSending = method === "POST" || method === "PUT";
  const head = requestHead(method, target, {
    host: base.host,
    ...headers,
    ...(isSending ? { "content-length": String(body?.length ?? 0) } : {}),
  });
  // What is sent is not seen leaving: a large body has the time of the whole request.
  const isLarge = (body?.length ?? 0) > smallBytes;
  using silence = silenceMs === undefined || isLarge ? undefined : startSilenceTimeout(signal, silenceMs);
  const pieces: Buffer[] = [];
  const response = await pool.exchange(originOf(base), {
    head,
    ...(body === undefined ? {} : { body: [body] }),
    onHeaders(answered) {
      silence?.reset();
      return (
        onHeaders?.(answered) ??
        ((chunk) => {
          silence?.reset();
          pieces.push(Buffer.from(chunk));
        })
      );
    },
    signal: silence?.signal ?? signal,
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    mayResend: !isSending, // a store may have carried it out
  });
  return { status: response.status, headers: response.headers, body: Buffer.concat(pieces) };
}

/** Percent-encodes all that RFC 3986 reserves. */
export function percentEncode(text: string): string {
  return encodeURIComponent(text).replaceAll(/[!'()*]/g, (one) => `%${one.codePointAt(0)?.toString(16).toUpperCase()}`);
}

/** Tells what a failed call means. @param needs says what these credentials need, where the store refuses them */
export function classifyCloud(error: unknown, call: ObjectCall, needs: string): ObjectFailure {
  return error instanceof StoreRefusal ? classifyStatus(error, call, needs) : classifyUnanswered(error, call);
}

function classifyStatus(refusal: StoreRefusal, call: ObjectCall, needs: string): ObjectFailure {
  const { status, code, message } = refusal;
  const found = saidBy(refusal);
  if ([408, 409, 425, 429].includes(status) || (status >= 500 && status !== 501)) {
    return { kind: "transient", found };
  }
  switch (status) {
    case 404:
      return { kind: "missing" };
    case 304:
    case 412:
      return call.action === "write" ? { kind: "exists" } : { kind: "changed", found: "its ETag has changed" };
    case 416:
      return { kind: "changed", found: "it is shorter than planned" };
    case 401:
    case 403: {
      const said = message === "" ? "" : `: ${message}`;
      const hint = status === 401 ? "check the credentials, and this machine's clock" : needs;
      const error = new JobError("PERMISSION", `${call.act}: access denied: ${found}${said}`, { hint });
      return { kind: "credentials", expired: /expired/i.test(code), found, error };
    }
    default:
      return permanent(`${call.act}: ${found}: ${message}`, "check the path, endpoint and region");
  }
}

export function saidBy({ status, code }: StoreRefusal): string {
  return `the store says ${code === "" ? "" : `${code}, `}${status}`;
}

/** What authorizes requests for some time. */
export interface Token {
  readonly text: string;
  readonly expiresMs: number;
}

/** A token is renewed so long before it expires; services give out a new one by then. */
const renewBeforeMs = 225_000;

/** Makes a function that returns a token: the last one until shortly before it expires. */
export function renewed(
  find: (ask: AskPlainly) => Promise<Token>,
): ((ask: AskPlainly) => Promise<string>) & { readonly forget: () => void } {
  let last: Promise<Token> | undefined;
  let expiresMs = 0;
  const token = async (ask: AskPlainly): Promise<string> => {
    if (last !== undefined && Date.now() <= expiresMs - renewBeforeMs) {
      return (await last).text;
    }
    const finding = find(ask);
    last = finding;
    expiresMs = Number.POSITIVE_INFINITY; // who comes meanwhile waits for it
    try {
      const found = await finding;
      expiresMs = found.expiresMs;
      return found.text;
    } catch (error) {
      last = undefined;
      throw error;
    }
  };
  return Object.assign(token, {
    forget() {
      last = undefined;
    },
  });
}

/** A request for a token. */
export interface TokenRequest {
  /** Names the service in messages. */
  readonly service: string;
  readonly url: string;
  /** What is sent: fields of a form, or JSON; nothing: a GET. */
  readonly form?: Readonly<Record<string, string>>;
  readonly json?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
  readonly hint: string;
}

/** Sends a request for a token, and returns the fields of the JSON that comes back. @throws CredentialsError, or what a connection throws */
export async function askForToken(ask: AskPlainly, request: TokenRequest): Promise<Readonly<Record<string, unknown>>> {
  const { service, url, form, json, headers = {}, timeoutMs, hint } = request;
  if (!URL.canParse(url)) {
    throw new CredentialsError(`the address of ${service} is none: ${url}`, hint);
  }
  const { origin, pathname, searchParams } = new URL(url);
  const text = form === undefined ? JSON.stringify(json) : new URLSearchParams(form).toString();
  const type = form === undefined ? "application/json" : "application/x-www-form-urlencoded";
  const response = await ask(
    {
      method: text === undefined ? "GET" : "POST",
      base: new URL(origin),
      path: pathname,
      query: Object.fromEntries(searchParams),
      headers: { ...headers, ...(text === undefined ? {} : { "content-type": type }) },
      ...(text === undefined ? {} : { body: Buffer.from(text) }),
    },
    timeoutMs,
  );
  const { status, body } = response;
  const fields = fieldsOfJson(body.toString("utf8"));
  if (status === 200) {
    return fields;
  }
  if (status >= 500 || status === 429 || status === 408) {
    throw new CredentialsError(`no credentials: ${service} answers ${status}`);
  }
  const said = [fields["error_description"], fields["error"]].find((field) => typeof field === "string");
  throw new CredentialsError(
    `looking for credentials: ${service} refuses: ${status}${said === undefined ? "" : `: ${said.split("\r\n")[0]}`}`,
    hint,
  );
}

/** The token of an answer; services send its time as a number or a text. */
export function parseToken(fields: Readonly<Record<string, unknown>>): Token {
  const { access_token: text, expires_in: expiresIn, expires_on: expiresOn } = fields;
  if (typeof text !== "string" || text === "") {
    throw new CredentialsError("no credentials: the service answers with something other than a token");
  }
  const expiresMs = expiresOn === undefined ? Date.now() + Number(expiresIn) * 1000 : Number(expiresOn) * 1000;
  return { text, expiresMs: Number.isNaN(expiresMs) ? Date.now() + 600_000 : expiresMs };
}

/** How long a server of the machine's own cloud may take to answer. */
export const metadataMs = 3000;

/** The fields of a JSON text; none of a text that is no JSON. */
export function fieldsOfJson(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** Larger bodies are sent in pieces of this size. Google Cloud Storage takes multiples of 256 KiB. */
export const pieceBytes = 8 * 1024 * 1024;

/**
 * Cuts a body into pieces of `pieceBytes`; the last one may be smaller. A buffer is one piece.
 * @throws ChangedBody before the last piece, where the bytes are not those of the digest
 */
export async function* piecesOf({ bytes, sizeBytes, sha256 }: SentBody): AsyncGenerator<Buffer> {
  const hash = createHash("sha256");
  let readBytes = 0;
  for await (const piece of Buffer.isBuffer(bytes) ? [bytes] : cut(bytes)) {
    hash.update(piece);
    readBytes += piece.length;
    if (readBytes > sizeBytes || (readBytes === sizeBytes && hash.digest("hex") !== sha256)) {
      throw new ChangedBody();
    }
    yield piece;
    if (readBytes === sizeBytes) {
      return;
    }
  }
  throw new ChangedBody();
}

async function* cut(body: Readable): AsyncGenerator<Buffer> {
  let chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    sizeBytes += chunk.length;
    if (sizeBytes >= pieceBytes) {
      const bytes = Buffer.concat(chunks);
      yield bytes.subarray(0, pieceBytes);
      chunks = [bytes.subarray(pieceBytes)];
      sizeBytes -= pieceBytes;
    }
  }
  if (sizeBytes > 0) {
    yield Buffer.concat(chunks);
  }
}
