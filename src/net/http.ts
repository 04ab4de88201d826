import { open } from "node:fs/promises";
import { JobError } from "../util/errors.js";
import { strictText } from "../util/strict-text.js";
import { tryAgain } from "../util/retry.js";
import { writeAll } from "../util/write-all.js";
import {
  BrokenTransfer,
  RefusedAnswer,
  retryAfterMs,
  type RequestTimeout,
  startSilenceTimeout,
  verdictOf,
} from "./http-failures.js";
import { headersNow, type HttpAnswer, type HttpEndpoint, withoutValues } from "./http-endpoint.js";
import { type OpenResponse, type ResponseHeaders, readBody, sendRequest } from "./request.js";

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
  return await retried(place, async ({ signal }) => {
    const response = await follow("HEAD", url, place, signal, {}, crossOrigin);
    response.body.destroy();
    return answerOf(response);
  });
}

/** Reads the JSON at a URL. */
export async function readJson(url: string, place: HttpEndpoint): Promise<unknown> {
  return await retried(place, async (watch) => {
    const text = await textAt(url, place, watch);
    try {
      return JSON.parse(text) as unknown;
    } catch {
      throw new BrokenTransfer("the answer is not JSON"); // of a proxy, or cut off
    }
  });
}

/** Reads the text at a URL. */
export async function readText(url: string, place: HttpEndpoint): Promise<string> {
  return await retried(place, (watch) => textAt(url, place, watch));
}

async function textAt(url: string, place: HttpEndpoint, watch: RequestTimeout): Promise<string> {
  const response = await follow("GET", url, place, watch.signal);
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

/** Reads a body until it has ended, or so many bytes have come. */
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
    const response = await follow("GET", url, place, watch.signal, rest).catch((error: unknown) => {
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

/** Where the body of an answer begins in the file, and the size of the whole file. @throws BrokenTransfer if it does not say */
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

/**
 * Sends a request and follows redirects. Headers of the place are sent to its own origin only.
 * @param extra more headers
 * @param crossOrigin whether redirects to other origins are followed
 */
async function follow(
  method: "GET" | "HEAD",
  from: string,
  { headers = {}, tls = {}, findProxy }: HttpEndpoint,
  signal: AbortSignal,
  extra: Readonly<Record<string, string>> = {},
  crossOrigin = true,
): Promise<OpenResponse> {
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
      const quoted = await beginningOf(readBody(response, signal), readBytes);
      const said = withoutValues(quoted.toString("utf8", 0, readBytes), own).slice(0, saidLength);
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
