import { open } from "node:fs/promises";
import { errnoOf, JobError, messageOf } from "../util/errors.js";
import { connectionErrors, type RetryTools, tryAgain, type Verdict } from "../util/retry.js";
import { strictText } from "../util/strict-text.js";
import { isCertificateError, isTlsProtocolError } from "../util/tls-errors.js";
import { writeAll } from "../util/write-all.js";
import {
  BrokenTransfer,
  type FindProxy,
  type HttpResponse,
  readBody,
  RefusingProxyError,
  type ResponseHeaders,
  sendRequest,
  type SilenceTimeout,
  startSilenceTimeout,
  type TlsSettings,
} from "./request.js";

/** Headers, or what gives them for each request: a token may be rotated. */
export type RequestHeaders = Readonly<Record<string, string>> | (() => Promise<Readonly<Record<string, string>>>);

/** A server that is asked by HTTP, with the texts for its errors. */
export interface HttpEndpoint {
  /** The act that messages begin with. */
  readonly doing: string;
  readonly retry: RetryTools;
  readonly signal: AbortSignal;
  /** How long the server may send nothing during a request. Default: 30 s. */
  readonly silenceMs?: number | undefined;
  /** Headers for the origin of the URL, as they are at each request. Another origin, after a redirect, does not get them. */
  readonly headers?: RequestHeaders | undefined;
  /** TLS settings for the origin of the URL only. */
  readonly tls?: TlsSettings | undefined;
  readonly findProxy: FindProxy;
  /** Makes the error for a response that a retry would not change. */
  readonly refused: (answer: HttpAnswer) => JobError;
  /** The hint of the error for a server that is still unreachable after all retries. */
  readonly hint: string;
}

/** A response without its body. */
export interface HttpAnswer {
  readonly status: number;
  readonly headers: ResponseHeaders;
  /** The URL of the response after redirects, without the query, which may contain a signature. */
  readonly place: string;
  /** The beginning of the body if the request was refused; "" for other responses. */
  readonly said: string;
}

/** The state of a file at a URL. */
export interface HttpFile {
  /** undefined: the server does not tell the size. */
  readonly sizeBytes: number | undefined;
  /** The ETag of the final answer; undefined if it has none. */
  readonly etag: string | undefined;
}

const mostRedirects = 10;
/** A server that asks for a longer pause is asked again after this one. */
const longestPauseMs = 60_000;

/**
 * Asks for the headers of a URL by HEAD. Redirects within the origin are followed; the answer that redirects to another
 * origin is returned as it is, if `crossOrigin` is false.
 */
export async function headOf(
  url: string,
  place: HttpEndpoint,
  { crossOrigin = true }: { readonly crossOrigin?: boolean } = {},
): Promise<HttpAnswer> {
  return await retried(place, async () => {
    using watch = startSilenceTimeout(place);
    const response = await follow(url, place, { method: "HEAD", crossOrigin, signal: watch.signal });
    response.body.destroy();
    return answerOf(response);
  });
}

/** Reads the JSON at a URL. */
export async function readJson(url: string, place: HttpEndpoint): Promise<unknown> {
  return await retried(place, async () => {
    using watch = startSilenceTimeout(place);
    const response = await follow(url, place, { method: "GET", crossOrigin: true, signal: watch.signal });
    const text = await textOf(response, watch);
    try {
      return JSON.parse(text) as unknown;
    } catch {
      throw new BrokenTransfer("the answer is not JSON"); // of a proxy, or cut off
    }
  });
}

/** Reads the text at a URL. */
export async function readText(url: string, place: HttpEndpoint): Promise<string> {
  return await retried(place, async () => {
    using watch = startSilenceTimeout(place);
    return await textOf(await follow(url, place, { method: "GET", crossOrigin: true, signal: watch.signal }), watch);
  });
}

async function textOf(response: HttpResponse, watch: SilenceTimeout): Promise<string> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const bytes of bodyOf(response, watch)) {
    size += bytes.length;
    if (size > mostTextBytes) {
      throw new BrokenTransfer(`the answer has more than ${mostTextBytes / 2 ** 20} MiB`);
    }
    pieces.push(bytes);
  }
  return textIn(Buffer.concat(pieces));
}

function textIn(bytes: Uint8Array): string {
  try {
    return strictText(bytes);
  } catch {
    throw new BrokenTransfer("the answer is not UTF-8");
  }
}

/**
 * Downloads a file to the new file `path`. A transfer that breaks off is continued where it ended, if the server can do
 * that.
 * @throws JobError MODEL_CHANGED if the file at the URL changes during the download
 */
export async function downloadTo(url: string, place: HttpEndpoint, path: string): Promise<HttpFile> {
  await using file = await open(path, "wx");
  let received = 0;
  let known: HttpFile | undefined;
  return await retried(place, async () => {
    using watch = startSilenceTimeout(place);
    const rest =
      received > 0 && known?.etag !== undefined ? { range: `bytes=${received}-`, "if-range": known.etag } : {};
    const response = await follow(url, place, { method: "GET", crossOrigin: true, signal: watch.signal, extra: rest });
    const etag = response.headers.get("etag") ?? undefined;
    if (known !== undefined && etag !== known.etag) {
      throw new JobError("MODEL_CHANGED", `${place.doing}: it was written to while it was being fetched`, {
        hint: "run again when the file is in place",
      });
    }
    if (response.status !== 206 || startOf(response) !== received) {
      received = 0; // the server sends the file from its beginning
      await file.truncate(0);
    }
    const length = lengthOf(response);
    const sizeBytes = length === undefined ? undefined : received + length;
    known = { sizeBytes, etag };
    for await (const bytes of bodyOf(response, watch)) {
      await writeAll(file, bytes, received);
      received += bytes.length;
    }
    if (sizeBytes !== undefined && received !== sizeBytes) {
      throw new BrokenTransfer(`a body of ${sizeBytes} bytes ended after ${received}`);
    }
    return { sizeBytes: received, etag };
  });
}

/** The file that an answer describes. */
export function fileOf({ headers }: Pick<HttpAnswer, "headers">): HttpFile {
  return { sizeBytes: lengthOf({ headers }), etag: headers.get("etag") ?? undefined };
}

function lengthOf({ headers }: { readonly headers: ResponseHeaders }): number | undefined {
  const length = headers.get("content-length");
  return length === null || headers.get("content-encoding") !== null ? undefined : Number(length);
}

/** The first byte of a partial answer; undefined if it does not say. */
function startOf({ headers }: HttpResponse): number | undefined {
  const [, start] = /^bytes (\d+)-/.exec(headers.get("content-range") ?? "") ?? [];
  return start === undefined ? undefined : Number(start);
}

function answerOf({ status, headers, url: { origin, pathname } }: HttpResponse, said = ""): HttpAnswer {
  return { status, headers, place: `${origin}${pathname}`, said };
}

/** Metadata of a model, a page of a registry: the largest are some MiB. */
const mostTextBytes = 64 * 1024 * 1024;
/** Characters of a refusal's body that errors have. */
const saidLength = 2000;
/** Bytes of it that are read: more, so that a credential which the server quotes is masked before the text is cut. */
const readBytes = 65_536;

/** Reads the beginning of the body of a refusal, which says why. */
async function beginningOf(response: HttpResponse, signal: AbortSignal): Promise<string> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const bytes of readBody(response, signal)) {
    pieces.push(bytes);
    size += bytes.length;
    if (size >= readBytes) {
      break;
    }
  }
  return Buffer.concat(pieces).toString("utf8", 0, readBytes);
}

async function* bodyOf(response: HttpResponse, watch: SilenceTimeout): AsyncGenerator<Uint8Array> {
  for await (const bytes of readBody(response, watch.signal)) {
    watch.reset();
    yield bytes;
  }
}

interface FollowOptions {
  readonly method: "GET" | "HEAD";
  readonly crossOrigin: boolean;
  readonly signal: AbortSignal;
  readonly extra?: Readonly<Record<string, string>>;
}

/** Sends a request and follows redirects. Headers of the place are sent to its own origin only. */
async function follow(
  from: string,
  { headers = {}, tls = {}, findProxy }: HttpEndpoint,
  { method, crossOrigin, signal, extra }: FollowOptions,
): Promise<HttpResponse> {
  let url = new URL(from);
  const { origin } = url;
  for (let turn = 0; turn <= mostRedirects; turn += 1) {
    const isOwn = url.origin === origin;
    // Else the size is that of a compressed body.
    const own = isOwn ? await headersNow(headers) : {};
    const sent = { "accept-encoding": "identity", ...own, ...extra };
    const proxy = findProxy(url);
    const response = await sendRequest(url, { method, headers: sent, signal, proxy, tls: isOwn ? tls : {} });
    const location = response.headers.get("location");
    if (response.status < 300 || response.status === 304) {
      return response;
    }
    if (response.status >= 400 || location === null) {
      const said = withoutValues(await beginningOf(response, signal), own).slice(0, saidLength);
      throw new RefusedAnswer(answerOf(response, said));
    }
    if (!URL.canParse(location, url.href)) {
      response.body.destroy();
      throw new RefusedAnswer(answerOf(response));
    }
    const next = new URL(location, url);
    if (next.origin !== origin && !crossOrigin) {
      return response;
    }
    response.body.destroy();
    // A redirect from HTTPS to HTTP would lose the encryption, and other protocols are not supported.
    if (next.protocol !== "https:" && (next.protocol !== "http:" || url.protocol === "https:")) {
      throw new RefusedAnswer(answerOf(response));
    }
    url = next;
  }
  throw new BrokenTransfer(`more than ${mostRedirects} redirects`);
}

async function retried<T>(place: HttpEndpoint, work: () => Promise<T>): Promise<T> {
  const { doing, retry, hint } = place;
  return await tryAgain(
    doing,
    retry,
    { judge: (error) => verdictOf(place, error), code: "NETWORK", hint },
    async () => {
      try {
        return await work();
      } catch (error) {
        await pauseAsAsked(place, error);
        throw error;
      }
    },
  );
}

/** Waits as long as a server that limits requests asks for: `Retry-After`, or Hugging Face's `RateLimit`. */
async function pauseAsAsked({ retry }: HttpEndpoint, error: unknown): Promise<void> {
  if (!(error instanceof RefusedAnswer) || ![429, 503].includes(error.answer.status)) {
    return;
  }
  const { headers } = error.answer;
  const [, limit] = /;t=(\d+)/.exec(headers.get("ratelimit") ?? "") ?? [];
  const seconds = Number(headers.get("retry-after") ?? limit ?? 0);
  if (seconds > 0 && seconds <= retry.maxSeconds) {
    await retry.sleep(Math.min(seconds * 1000, longestPauseMs));
  }
}

/** A response that is neither a success nor a redirect. */
class RefusedAnswer extends Error {
  readonly answer: HttpAnswer;

  constructor(answer: HttpAnswer) {
    super(`HTTP ${answer.status}`);
    this.answer = answer;
  }
}

const transientStatus: ReadonlySet<number> = new Set([408, 425, 429, 500, 502, 503, 504]);

/** Classifies a failed request: it is retried, or ends with an error. */
export function verdictOf(place: HttpEndpoint, error: unknown): Verdict {
  const { refused, signal } = place;
  if (signal.aborted) {
    return { kind: "end", error: signal.reason };
  }
  if (error instanceof RefusedAnswer) {
    const { answer } = error;
    return transientStatus.has(answer.status)
      ? { kind: "again", found: `the server answered ${answer.status}` }
      : { kind: "end", error: refused(answer) };
  }
  if (error instanceof BrokenTransfer) {
    return { kind: "again", found: error.message };
  }
  if (error instanceof RefusingProxyError) {
    return transientStatus.has(error.status)
      ? { kind: "again", found: error.message }
      : { kind: "end", error: refusedByProxy(place, error) };
  }
  return judgeConnection(place, error);
}

function refusedByProxy({ doing }: HttpEndpoint, { message }: RefusingProxyError): JobError {
  return new JobError("PERMISSION", `${doing}: ${message}`, {
    hint: "set HTTPS_PROXY and HTTP_PROXY to the proxy, with user and password if it needs them; NO_PROXY lists hosts that are reached without it",
  });
}

function judgeConnection({ doing }: HttpEndpoint, error: unknown): Verdict {
  const errno = errnoOf(error) ?? "";
  // HPE_…: the response is not HTTP. Z_…: its compressed body is damaged.
  if (connectionErrors.has(errno) || /^(HPE|Z)_/.test(errno)) {
    return { kind: "again", found: errno };
  }
  if (isCertificateError(errno)) {
    const hint = "set NODE_EXTRA_CA_CERTS to a file with the authority's certificate";
    const message = `${doing}: the server's certificate is not trusted: ${messageOf(error)} (${errno})`;
    return { kind: "end", error: new JobError("PERMISSION", message, { hint, cause: error }) };
  }
  if (isTlsProtocolError(errno)) {
    const isLogin = /CERTIFICATE_REQUIRED|BAD_CERTIFICATE|UNKNOWN_CA|HANDSHAKE_FAILURE/.test(errno);
    const found = isLogin
      ? "accepts no certificate of this client, or none was given"
      : "does not speak TLS as this program does";
    const message = `${doing}: the server ${found} (${errno})`;
    const hint = isLogin
      ? "servers that ask for a certificate need one that their authority signed"
      : "check the URL with curl -I";
    return { kind: "end", error: new JobError("PERMISSION", message, { hint, cause: error }) };
  }
  return { kind: "end", error };
}

/** @throws what the function throws that gives them */
export async function headersNow(headers: RequestHeaders): Promise<Readonly<Record<string, string>>> {
  return typeof headers === "function" ? await headers() : headers;
}

/** Shorter values are no credentials, and may be parts of words. */
const credentialLength = 6;

/**
 * A text of a server without the values of headers that were sent to it, which may be credentials: some servers quote them,
 * also with the escapes of JSON. The longest are replaced first, since one may be the beginning of another.
 */
export function withoutValues(text: string, headers: Readonly<Record<string, string>>): string {
  return Object.values(headers)
    .flatMap((value) => [value, value.replace(/^\w+ /, "")])
    .filter(({ length }) => length >= credentialLength)
    .toSorted((one, other) => other.length - one.length)
    .filter((value) => text.includes(plainest(value)))
    .reduce((rest, value) => rest.replaceAll(quoted(value), "***"), text);
}

/** The longest part of a value that is the same in all texts which quote it. Its search is a thousandth of the value's. */
function plainest(value: string): string {
  const [longest = ""] = value.split(/[^A-Za-z0-9]+/).toSorted((one, other) => other.length - one.length);
  return longest;
}

/** Matches a value of a header as it is or in a JSON text, also in one that is a string of another JSON text. */
function quoted(value: string): RegExp {
  const codes = Array.from(value, (character) => (character.codePointAt(0) ?? 0).toString(16).padStart(4, "0"));
  const patterns = codes.map((code) => {
    const digits = code.replaceAll(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`);
    return `\\\\{0,3}(?:\\u{${code}}|u${digits})`;
  });
  return new RegExp(patterns.join(""), "gu");
}
