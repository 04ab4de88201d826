import type { JobError } from "../util/errors.js";
import type { RetryTools } from "../util/retry.js";
import type { FindProxy } from "./proxy.js";
import type { ResponseHeaders, TlsSettings } from "./request.js";

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
