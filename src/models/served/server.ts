import { unescape } from "node:querystring";
import type { HttpConnections } from "../../base/http/connections.js";
import {
  BrokenTransfer,
  type HttpAnswer,
  type HttpEndpoint,
  readJson,
  type RequestHeaders,
  retryAfterMs,
  withoutValues,
} from "../../base/http/http.js";
import type { FindProxy } from "../../base/http/proxies.js";
import type { ResponseHeaders, TlsSettings } from "../../base/http/request.js";
import { fieldsOf } from "../../base/guards.js";
import { JobError } from "../../base/errors.js";
import { type RetryTools, tryAgain, type RetryVerdict } from "../../base/retry.js";

/** Signs a request: returns its headers with those of a signature. @throws JobError PERMISSION; BrokenTransfer */
export type SignRequest = (request: {
  readonly method: "GET" | "POST";
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: readonly Uint8Array[];
}) => Promise<Readonly<Record<string, string>>>;

export interface ModelServer {
  /** As messages, logs and reports show it: path and query may have a secret. */
  readonly url: string;
  /** As it is asked: see `urlAt`. */
  readonly base: string;
  /** The parts of `base` that no message shows, in all spellings. */
  readonly hidden: Readonly<Record<string, string>>;
  /** The model's name at the server, or the path of its predictions. */
  readonly model: string;
  /** Sent with each request: credentials. */
  readonly headers: RequestHeaders;
  /** Signs requests for predictions; undefined: the headers alone are the credentials. */
  readonly sign?: SignRequest | undefined;
  readonly timeoutMs: number;
  /** Requests in flight, at most. */
  readonly most: number;
  readonly retry: RetryTools;
  readonly signal: AbortSignal;
  readonly findProxy: FindProxy;
  /** What requests for predictions are sent over, unless a proxy is in between. */
  readonly connections: HttpConnections;
  /** The authorities that are trusted, and the certificate that is shown. */
  readonly tls: TlsSettings;
}

export type ModelServers = readonly [ModelServer, ...ModelServer[]];

/** Parts of paths that are not hidden. */
const plainPart = /^(|v\d+(beta)?|api|openai)$/;

/** What a server's URL is for requests and for messages. @param predictions the path at the server, with its query */
export function placeAt(given: string, predictions = ""): Pick<ModelServer, "url" | "base" | "hidden"> {
  const { origin, pathname, search } = new URL(given);
  const path = pathname.replace(/\/+$/, "");
  const parts = path.split("/");
  const shown = parts.map((part) => (plainPart.test(part) ? part : "***"));
  const base = urlAt({ base: `${origin}${path}${search}` }, predictions);
  const query = new URL(base).search.slice(1);
  const values = query.split("&").map((pair) => pair.slice(pair.indexOf("=") + 1));
  const hidden = [...parts.filter((part) => !plainPart.test(part)), query, ...values].flatMap(spellings);
  return {
    url: `${origin}${shown.join("/")}${search === "" ? "" : "?***"}`,
    base,
    hidden: Object.fromEntries([...new Set(hidden)].map((text, index) => [`url ${index}`, text])),
  };
}

/** A part of a URL as servers may quote it: as it is, decoded, and encoded. */
function spellings(part: string): string[] {
  const decoded = [unescape(part), unescape(part.replaceAll("+", " "))];
  const encoded = decoded.map((text) => encodeURIComponent(text));
  return [
    part,
    ...decoded,
    ...encoded,
    ...encoded.map((text) => text.replaceAll(/%../g, (code) => code.toLowerCase())),
  ];
}

/** The URL of a path at a server. A query of the server's URL stays at the end. */
export function urlAt({ base }: Pick<ModelServer, "base">, path: string): string {
  const end = base.indexOf("?");
  return end === -1
    ? `${base}${path}`
    : `${base.slice(0, end)}${path}${path.includes("?") ? "&" : "?"}${base.slice(end + 1)}`;
}

/** The URL of the model, or of one of its versions. @param more a path below it */
export function modelUrl(server: ModelServer, api: "v1" | "v2", version: string | undefined, more = ""): string {
  const ofVersion = version === undefined ? "" : `/versions/${encodeURIComponent(version)}`;
  return urlAt(server, `/${api}/models/${encodeURIComponent(server.model)}${ofVersion}${more}`);
}

/** The model as messages name it. */
export function serverText({ url, model }: Pick<ModelServer, "url" | "model">): string {
  return `${model} on ${url}`;
}

/** Several servers of one model, as messages name them. */
export function serversText(servers: ModelServers): string {
  return `${servers[0].model} on ${servers.map(({ url }) => url).join(", ")}`;
}

/** The server, whose first failure is final. */
export function withoutRetry(server: ModelServer): ModelServer {
  return { ...server, retry: { ...server.retry, maxSeconds: 0 } };
}

/** The hint for servers that do not answer. */
export const serverAway =
  "run the same command again when the server answers: what is committed is kept; retry.max_seconds is how long a run waits for it";

/** The server as a place that answers requests. @param doing the act that messages begin with */
export function placeOf(server: ModelServer, doing: string): HttpEndpoint {
  const { headers, timeoutMs: silenceMs, retry, signal, findProxy, tls } = server;
  const refused = ({ status, said }: HttpAnswer): JobError =>
    refusalOf(server, doing, { status, said: withoutValues(said, server.hidden) });
  return { doing, headers, silenceMs, retry, signal, findProxy, tls, refused, hint: serverAway };
}

function saidIn(text: string): string {
  let said = text;
  try {
    said = messageIn(JSON.parse(text)) ?? text;
  } catch {
    // It is no JSON.
  }
  // Without the id of the request, which differs between equal refusals.
  return said
    .replace(/^\[request id: [^\]]*\] /, "")
    .replaceAll(/\s+/g, " ")
    .trim()
    .slice(0, 300);
}

/** The message in a refusal: `error`, `detail`, or `message`, which clouds write in several ways. */
function messageIn(refusal: unknown): string | undefined {
  const { error, detail, message, Message, OriginalMessage } = fieldsOf(refusal);
  if (typeof error === "object" && error !== null) {
    return messageIn(error);
  }
  const said = [error, OriginalMessage, message, Message].find((one) => typeof one === "string" && one !== "");
  return typeof said === "string" ? said : detail === undefined ? undefined : JSON.stringify(detail);
}

const tokenHint =
  "model.server.token is sent as Authorization: Bearer, with model.server.headers; check that they may use this model";
const signedHint =
  "requests are signed with the AWS credentials of this environment; check the role and its rights (sagemaker:InvokeEndpoint), the region, and this machine's clock";

/** The error for an answer that no retry changes. */
export function refusalOf(
  { sign }: Pick<ModelServer, "sign">,
  doing: string,
  { status, said }: Pick<HttpAnswer, "status" | "said">,
): JobError {
  const text = saidIn(said);
  const message = `${doing}: the server answered ${status}${text === "" ? "" : `: ${text}`}`;
  if (status === 401 || status === 403) {
    return new JobError("PERMISSION", message, { hint: sign === undefined ? tokenHint : signedHint });
  }
  if (status === 404) {
    const hint = "check the URL, and the name and version or the path, in model.server";
    return new JobError("FILE_MISSING", message, { hint });
  }
  if (status === 501) {
    const hint = "the server does not have this part of the protocol; without versions, leave out model.server.version";
    return new JobError("MODEL_INVALID", message, { hint });
  }
  if (status >= 300 && status < 400) {
    return new JobError("MODEL_INVALID", message, { hint: "redirects are not followed; write the final URL" });
  }
  return new JobError("MODEL_INVALID", message, {
    hint: "check that model.server.url is a server of model.server.protocol",
  });
}

/** An answer to a request for predictions that has none. */
export interface Refusal {
  readonly status: number;
  readonly headers: ResponseHeaders;
  readonly said: string;
}

/**
 * What a refusal is about: the values of the request; its size; the model or its version, which the server does not know
 * (gone); a failure of the server, which may be due to the values or not (fault). `message` says what it answered.
 */
export type RefusalKind =
  | { readonly kind: "values" | "too large" | "gone" | "fault" | "other"; readonly message: string }
  /** The server takes no more requests now. `isRate`: there were too many in a time */
  | { readonly kind: "overloaded"; readonly message: string; readonly retryAfterMs: number; readonly isRate: boolean };

const overloaded: ReadonlySet<number> = new Set([408, 425, 429, 502, 503, 504]);

/** Triton answers 400 to what other servers answer 404 or 413 to. */
const unknownModel = /^request for unknown model|has no available versions/i;
const batchTooLarge = /batch-size must be <= \d+/i;

export function refusalKind(refusal: Refusal): RefusalKind {
  const { headers, said } = refusal;
  const text = saidIn(said);
  const message = `the server answered ${refusal.status}${text === "" ? "" : `: ${text}`}`;
  const status = statusOfModel(refusal);
  if (overloaded.has(status) || throttled.test(headers.get("x-amzn-errortype") ?? "")) {
    return { kind: "overloaded", message, retryAfterMs: retryAfterMs(headers), isRate: status === 429 };
  }
  if (status === 404 || (status === 400 && unknownModel.test(text))) {
    return { kind: "gone", message };
  }
  if (status === 413 || (status === 400 && batchTooLarge.test(text))) {
    return { kind: "too large", message };
  }
  return { kind: status === 400 || status === 422 ? "values" : status === 500 ? "fault" : "other", message };
}

/** SageMaker's error for requests beyond a limit, which has status 400. */
const throttled = /^Throttling/;

/** The status of the model's own answer: SageMaker wraps it into an answer with 424. */
function statusOfModel({ status, said }: Refusal): number {
  const [, original] = status === 424 ? (/"OriginalStatusCode"\s*:\s*(\d{3})/.exec(said) ?? []) : [];
  return original === undefined ? status : Number(original);
}

export type Json = Readonly<Record<string, unknown>>;

type Asked = { readonly json: Json } | { readonly refused: HttpAnswer; readonly error: unknown };

/** Statuses of a server that does not have something, or does not know the request. */
const absent: ReadonlySet<number> = new Set([400, 404, 405, 501]);

/** Reads JSON. An answer that says that something is not there is returned, any other refusal thrown. */
export async function ask(
  server: ModelServer,
  doing: string,
  url: string,
  read: (url: string, place: HttpEndpoint) => Promise<unknown> = readJson,
): Promise<Asked> {
  const place = placeOf(server, doing);
  let refused: HttpAnswer | undefined;
  const keep = (answer: HttpAnswer): JobError => {
    refused = answer;
    return place.refused(answer);
  };
  try {
    return { json: fieldsOf(await read(url, { ...place, refused: keep })) };
  } catch (error) {
    if (refused !== undefined && absent.has(refused.status)) {
      return { refused, error };
    }
    throw error;
  }
}

/** Repeats `work` while it throws BrokenTransfer: a server that is starting does not know its models yet. */
export async function untilReady<T>(server: ModelServer, doing: string, work: () => Promise<T>): Promise<T> {
  return await tryAgain(doing, server.retry, { judge: judgeBroken, code: "NETWORK", hint: serverAway }, work);
}

function judgeBroken(error: unknown): RetryVerdict {
  return error instanceof BrokenTransfer ? { kind: "again", found: error.message } : { kind: "end", error };
}

/**
 * How long a server may lack a model that it had before: one that has just started may answer before it has loaded its
 * models. Less than what a request may be tried for, so that the end is an error about the model.
 */
export function loadingSeconds({ maxSeconds }: Pick<RetryTools, "maxSeconds">): number {
  return Math.min(60, maxSeconds / 2);
}

/** The texts in a list of an answer; none if it has no such list. */
export function listIn(json: Json, key: string): string[] {
  const list = json[key];
  return Array.isArray(list) ? list.filter((one) => typeof one === "string") : [];
}
