import { open } from "node:fs/promises";
import { errnoOf, isCertificateError, isTlsProtocolError, JobError, messageOf } from "../errors.js";
import { connectionErrors, type RetryTools, tryAgain, type RetryVerdict } from "../retry.js";
import { strictText } from "../texts.js";
import { writeAll } from "../write-all.js";
import type { FindProxy } from "./proxies.js";
import {
  type OpenResponse,
  readBody,
  RefusingProxyError,
  type ResponseHeaders,
  sendRequest,
  type TlsSettings,
} from "./request.js";

interface HttpFile {
  /** undefined: the server does not tell the size. */
  readonly sizeBytes: number | undefined;
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
  return await retried(place, async ({ signal }) => {
    const response = await follow("HEAD", url, place, signal, { crossOrigin });
    response.body.destroy();
    return answerOf(response);
  });
}

export async function readJson(url: string, place: HttpEndpoint): Promise<unknown> {
  return await retried(place, async (watch) => jsonOf(await textAt(url, place, watch)));
}

/** Reads JSON of the origin of the URL: an answer that redirects to another one is refused. */
export async function readOwnJson(url: string, place: HttpEndpoint): Promise<unknown> {
  return await retried(place, async (watch) => {
    const response = await follow("GET", url, place, watch.signal, { crossOrigin: false });
    return jsonOf(await textOf(ownAnswer(response), watch));
  });
}

/** Sends a form by POST, which must be safe to repeat, and reads JSON. Redirects are not followed. */
export async function postForm(url: string, place: HttpEndpoint, form: URLSearchParams): Promise<unknown> {
  const body = Buffer.from(form.toString());
  const extra = { "content-type": "application/x-www-form-urlencoded", "content-length": String(body.length) };
  return await retried(place, async (watch) => {
    const response = await follow("POST", url, place, watch.signal, { extra, body: [body], crossOrigin: false });
    return jsonOf(await textOf(ownAnswer(response), watch));
  });
}

/** The failure of a request that may have been carried out all the same. */
export class Unsettled extends Error {}

/**
 * Sends JSON by POST, once, and reads JSON. Redirects are not followed.
 * @throws Unsettled where whoever has sent it must find out whether it was carried out
 */
export async function postJson(url: string, place: HttpEndpoint, text: string): Promise<unknown> {
  const body = Buffer.from(text);
  const extra = { "content-type": "application/json", "content-length": String(body.length) };
  try {
    using watch = startSilenceTimeout(place.signal, place.silenceMs);
    const response = await follow("POST", url, place, watch.signal, { extra, body: [body], crossOrigin: false });
    return jsonOf(await textOf(ownAnswer(response), watch));
  } catch (error) {
    const verdict = verdictOf(place, error);
    throw verdict.kind === "end" ? verdict.error : new Unsettled(verdict.found, { cause: error });
  }
}

function ownAnswer(response: OpenResponse): OpenResponse {
  if (response.status >= 300) {
    response.body.destroy();
    throw new RefusedAnswer(answerOf(response));
  }
  return response;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw new BrokenTransfer("the answer is not JSON"); // of a proxy, or cut off
  }
}

export async function readText(url: string, place: HttpEndpoint): Promise<string> {
  return await retried(place, (watch) => textAt(url, place, watch));
}

async function textAt(url: string, place: HttpEndpoint, watch: RequestTimeout): Promise<string> {
  return await textOf(await follow("GET", url, place, watch.signal), watch);
}

async function textOf(response: OpenResponse, watch: RequestTimeout): Promise<string> {
  const bytes = await beginningOf(bodyOf(response, watch), mostTextBytes + 1);
  if (bytes.length > mostTextBytes) {
    throw new BrokenTransfer(`the answer has more than ${mostTextBytes / 2 ** 20} MiB`);
  }

  try {
    return strictText(bytes);
  } catch {
    throw new BrokenTransfer("the answer is not UTF-8");
  }
}

async function beginningOf(body: AsyncIterable<Uint8Array>, mostBytes: number): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const bytes of body) {
    pieces.push(bytes);
    size += bytes.length;
    if (size >= mostBytes) {
      break;
    }
  }
  return Buffer.concat(pieces);
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
  return await retried(place, async (watch) => {
    const rest =
      received > 0 && known?.etag !== undefined ? { range: `bytes=${received}-`, "if-range": known.etag } : {};
    const response = await follow("GET", url, place, watch.signal, { extra: rest }).catch((error: unknown) => {
      if (received > 0 && error instanceof RefusedAnswer && error.answer.status === 416) {
        received = 0; // it broke off at the end of a file whose size was not known
        throw new BrokenTransfer("the server has no rest of the file");
      }
      throw error;
    });
    const etag = response.headers.get("etag") ?? undefined;
    if (known !== undefined && etag !== known.etag) {
      throw new JobError("MODEL_CHANGED", `${place.doing}: it was written to while it was being fetched`, {
        hint: "run again when the file is in place",
      });
    }
    const { start, sizeBytes } = partIn(response);
    if (start > received) {
      throw new BrokenTransfer(`the server sent the file from byte ${start} on, and ${received} was asked for`);
    }
    received = start; // most servers send the whole file again, or just the rest
    await file.truncate(start);
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

/** Where the body begins in the file, and the size of the whole file. @throws BrokenTransfer if it does not say */
function partIn(response: OpenResponse): { readonly start: number; readonly sizeBytes: number | undefined } {
  const length = lengthOf(response);
  if (response.status !== 206) {
    return { start: 0, sizeBytes: length };
  }
  const [, first, size] = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(response.headers.get("content-range") ?? "") ?? [];
  if (first === undefined) {
    throw new BrokenTransfer("the server sent a part of the file, and does not say which");
  }
  const start = Number(first);
  return { start, sizeBytes: size !== "*" ? Number(size) : length === undefined ? undefined : start + length };
}

function answerOf({ status, headers, url: { origin, pathname } }: OpenResponse, said = ""): HttpAnswer {
  return { status, headers, place: `${origin}${pathname}`, said };
}

/** Metadata of a model, a page of a registry: the largest are some MiB. */
const mostTextBytes = 64 * 1024 * 1024;
/** Characters of a refusal's body that errors have. */
const saidLength = 2000;
/** Bytes of it that are read: more, so that a credential which the server quotes is masked before the text is cut. */
const readBytes = 65_536;

async function* bodyOf(response: OpenResponse, watch: RequestTimeout): AsyncGenerator<Uint8Array> {
  for await (const bytes of readBody(response, watch.signal)) {
    watch.reset();
    yield bytes;
  }
}

interface Following {
  readonly extra?: Readonly<Record<string, string>>;
  readonly body?: readonly Uint8Array[];
  readonly crossOrigin?: boolean;
}

/** Redirects of a POST are not followed. Headers of the place are sent to its own origin only. */
async function follow(
  method: "GET" | "HEAD" | "POST",
  from: string,
  { headers = {}, tls = {}, findProxy }: HttpEndpoint,
  signal: AbortSignal,
  { extra = {}, body, crossOrigin = true }: Following = {},
): Promise<OpenResponse> {
  let url = new URL(from);
  const { origin } = url;
  for (let turn = 0; turn <= mostRedirects; turn += 1) {
    const isOwn = url.origin === origin;
    // Else the size is that of a compressed body.
    const own = isOwn ? await headersNow(headers) : {};
    const sent = { "accept-encoding": "identity", ...own, ...extra };
    const proxy = findProxy(url);
    const response = await sendRequest(url, { method, headers: sent, body, signal, proxy, tls: isOwn ? tls : {} });
    const location = response.headers.get("location");
    if (response.status < 300 || response.status === 304) {
      return response;
    }
    if (response.status >= 400 || location === null) {
      const quoted = await beginningOf(readBody(response, signal), readBytes);
      const said = withoutValues(quoted.toString("utf8", 0, readBytes), own).slice(0, saidLength);
      throw new RefusedAnswer(answerOf(response, said));
    }
    if (!URL.canParse(location, url.href)) {
      response.body.destroy();
      throw new RefusedAnswer(answerOf(response));
    }
    const next = new URL(location, url);
    if (method === "POST" || (next.origin !== origin && !crossOrigin)) {
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

async function retried<T>(place: HttpEndpoint, work: (watch: RequestTimeout) => Promise<T>): Promise<T> {
  const { doing, retry, hint } = place;
  const rules = { judge: (error: unknown) => verdictOf(place, error), code: "NETWORK", hint } as const;
  return await tryAgain(doing, retry, rules, async () => {
    try {
      using watch = startSilenceTimeout(place.signal, place.silenceMs);
      return await work(watch);
    } catch (error) {
      const asked = error instanceof RefusedAnswer && [429, 503].includes(error.answer.status);
      const pauseMs = asked ? retryAfterMs(error.answer.headers) : 0;
      if (pauseMs > 0 && pauseMs <= retry.maxSeconds * 1000) {
        await retry.sleep(Math.min(pauseMs, longestPauseMs));
      }
      throw error;
    }
  });
}

/** Headers, or what gives them for each request: a token may be rotated. */
export type RequestHeaders = Readonly<Record<string, string>> | (() => Promise<Readonly<Record<string, string>>>);

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
    .toSorted((left, right) => right.length - left.length)
    .filter((value) => text.includes(plainest(value)))
    .reduce((rest, value) => rest.replaceAll(quotedForms(value), "***"), text);
}

/** The longest part of a value that is the same in all texts which quote it. Its search is a thousandth of the value's. */
function plainest(value: string): string {
  const [longest = ""] = value.split(/[^A-Za-z0-9]+/).toSorted((left, right) => right.length - left.length);
  return longest;
}

/** Matches a value of a header as it is or in a JSON text, also in one that is a string of another JSON text. */
function quotedForms(value: string): RegExp {
  const codes = Array.from(value, (character) => (character.codePointAt(0) ?? 0).toString(16).padStart(4, "0"));
  const patterns = codes.map((code) => {
    const digits = code.replaceAll(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`);
    return `\\\\{0,3}(?:\\u{${code}}|u${digits})`;
  });
  return new RegExp(patterns.join(""), "gu");
}

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

class RefusedAnswer extends Error {
  readonly answer: HttpAnswer;

  constructor(answer: HttpAnswer) {
    super(`HTTP ${answer.status}`);
    this.answer = answer;
  }
}

/** A transfer that ended early, timed out or did not follow the protocol. It is always transient. */
export class BrokenTransfer extends Error {}

/**
 * The pause that a server asks for, in seconds or until a date; 0 if it asks for none. OpenAI and Azure round seconds up,
 * and send milliseconds in a header of their own; Hugging Face has seconds in `RateLimit`.
 */
export function retryAfterMs(headers: ResponseHeaders): number {
  const exact = headers.get("retry-after-ms") ?? "";
  if (/^\d+(\.\d+)?$/.test(exact)) {
    return Number(exact);
  }
  const [, limit = ""] = /;t=(\d+)/.exec(headers.get("ratelimit") ?? "") ?? [];
  const asked = headers.get("retry-after") ?? limit;
  if (/^\d+$/.test(asked)) {
    return Number(asked) * 1000;
  }
  const until = Date.parse(asked);
  return Number.isNaN(until) ? 0 : Math.max(0, until - Date.now());
}

const transientStatus: ReadonlySet<number> = new Set([408, 425, 429, 500, 502, 503, 504]);

/** Classifies a failed request: it is retried, or ends with an error. */
export function verdictOf(place: HttpEndpoint, error: unknown): RetryVerdict {
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

function judgeConnection({ doing }: HttpEndpoint, error: unknown): RetryVerdict {
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
    const what = isLogin
      ? "accepts no certificate of this client, or none was given"
      : "does not speak TLS as this program does";
    const message = `${doing}: the server ${what} (${errno})`;
    const hint = isLogin
      ? "servers that ask for a certificate need one that their authority signed"
      : "check the URL with curl -I";
    return { kind: "end", error: new JobError("PERMISSION", message, { hint, cause: error }) };
  }
  return { kind: "end", error };
}

interface Deadline extends Disposable {
  readonly reset: () => void;
}

export function startDeadline(ms: number, onOver: () => void): Deadline {
  // While something blocks the thread, received bytes wait unread: they are read before this decides that none came.
  let pending: NodeJS.Immediate | undefined;
  const timer = setTimeout(() => {
    pending = setImmediate(onOver);
  }, ms);
  return {
    reset() {
      clearImmediate(pending);
      timer.refresh();
    },
    [Symbol.dispose]() {
      clearTimeout(timer);
      clearImmediate(pending);
    },
  };
}

/** The finding of a request that is stopped at its time limit. */
export function tookTooLong(ms: number): BrokenTransfer {
  return new BrokenTransfer(`the request took more than ${ms / 1000} s`);
}

const usualSilenceMs = 30_000;

interface RequestTimeout extends Deadline {
  readonly signal: AbortSignal;
}

/** Ends a request in which the server is silent for so long: `reset` when bytes come. */
export function startSilenceTimeout(signal: AbortSignal, silenceMs = usualSilenceMs): RequestTimeout {
  return startTimeout(signal, silenceMs, () => new BrokenTransfer(`the server was silent for ${silenceMs / 1000} s`));
}

/** @param signal stops the request too; @param reasonOf makes the reason that a request which is over time ends with */
export function startTimeout(
  signal: AbortSignal,
  ms: number,
  reasonOf: (ms: number) => BrokenTransfer,
): RequestTimeout {
  const controller = new AbortController();
  const deadline = startDeadline(ms, () => {
    controller.abort(reasonOf(ms));
  });
  const stop = (): void => {
    controller.abort(signal.reason);
  };
  signal.addEventListener("abort", stop, { once: true });
  if (signal.aborted) {
    stop();
  }
  return {
    signal: controller.signal,
    reset: deadline.reset,
    [Symbol.dispose]() {
      deadline[Symbol.dispose]();
      signal.removeEventListener("abort", stop);
      controller.abort(); // closes a response whose body was not read to its end
    },
  };
}
