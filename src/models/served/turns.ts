import { Readable } from "node:stream";
import type { AnswerFault } from "../../columns/types.js";
import { originOf, requestHead } from "../../base/http/connections.js";
import {
  BrokenTransfer,
  headersNow,
  startTimeout,
  tookTooLong,
  verdictOf,
  withoutValues,
} from "../../base/http/http.js";
import { decompressed, readBody, type ResponseHeaders, sendRequest } from "../../base/http/request.js";
import { errnoOf, JobError } from "../../base/errors.js";
import { tryAgain, type RetryVerdict } from "../../base/retry.js";
import type { ServerTraffic } from "../engine.js";
import { type EncodedRequest, ServerFault } from "./protocol.js";
import {
  type ModelServer,
  type ModelServers,
  placeOf,
  type Refusal,
  refusalKind,
  type RefusalKind,
  refusalOf,
  serverAway,
  serversText,
  serverText,
} from "./server.js";

/** What the end of a request says of its server. */
export type RequestEnd =
  | { readonly kind: "answered"; readonly rows: number; readonly ms: number }
  /** It works: it refused the request. */
  | { readonly kind: "works" }
  /** It did not answer, or takes no requests now. */
  | { readonly kind: "unavailable"; readonly found: string }
  /** It works, and was sent too many requests. */
  | { readonly kind: "overloaded"; readonly found: string }
  /** It failed on this request, and may answer others. */
  | { readonly kind: "failed"; readonly found: string };

/** The permission for one request to a server. */
export interface Turn {
  readonly server: ModelServer;
  /** Counts one more request to the server, of no row. */
  countRequest(this: void): void;
  /** Learns from the headers of an answer, or of a refusal, how many requests the server takes in a time. */
  heard(headers: ResponseHeaders): void;
  /** Keeps the pause that the server asks for. @throws JobError NETWORK if it is too long, and there is no other server */
  pause(found: string, ms: number): void;
  /** Called once. */
  end(end: RequestEnd): void;
}

interface Waiting {
  readonly tokens: number;
  readonly failed: ModelServer | undefined;
  readonly resolve: (turn: Turn) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * How it works. All requests wait in one queue. The first one goes to the server that has the smallest share of its limit
 * in flight, and to the one on which it failed last only if there is no other.
 *
 * - Each server has a limit of requests in flight, which grows while more of them pay, and is halved when the server is
 *   overloaded: once for all requests that were in flight then. No limit exceeds `most`, and neither does their sum.
 * - After five failures in a row without any answer, a server counts as unavailable. Then it gets one request at a time,
 *   after pauses that double from 0.1 s to 5 s; the first answer ends this. When all servers have been unavailable for
 *   `retry.maxSeconds`, the attempt ends.
 * - A pause that a server asks for is kept, and so is the rate that its headers name (`createHeaderPace`).
 *
 * @param doing the act that messages begin with
 * @param isEager whether limits grow until the server is overloaded; otherwise, while the throughput grows
 * @public so that tests count turns
 */
export function openTurns(servers: ModelServers, doing: string, isEager: boolean) {
  const [{ retry, most }] = servers;
  const endpoints = servers.map((server) => openEndpoint(server, isEager, servers.length > 1));
  const waiting: Waiting[] = [];
  let [inFlight, highest, answers, wakeMs] = [0, 0, 0, Number.POSITIVE_INFINITY];
  let stopped: { readonly error: unknown } | undefined;

  const stop = (error: unknown): void => {
    stopped ??= { error };

    for (const { reject } of waiting.splice(0)) {
      reject(stopped.error);
    }
  };

  const requireOpen = (): void => {
    if (stopped !== undefined) {
      throw stopped.error;
    }
  };

  const admit = (): void => {
    for (let next = waiting[0]; next !== undefined; next = waiting[0]) {
      if (inFlight >= most) {
        return;
      }
      const nowMs = retry.nowMs();
      const endpoint = bestOf(endpoints, next, nowMs);
      if (endpoint === undefined) {
        const away = awayError(endpoints, doing);
        return away === undefined ? void wake(next.tokens, nowMs) : stop(away);
      }

      waiting.shift();
      next.resolve(turnAt(endpoint, next));
    }
  };

  /** Admits requests when the next server may be asked: no request in flight would do so. @param nowMs when none was found */
  const wake = async (tokens: number, nowMs: number): Promise<void> => {
    const dueMs = Math.min(...endpoints.map((one) => readyMs(one, tokens)).filter((ms) => ms > nowMs));
    if (dueMs >= wakeMs) {
      return;
    }

    wakeMs = dueMs;
    try {
      await retry.sleep(dueMs - nowMs);
    } catch (error) {
      return stop(error); // the job is stopped
    }
    wakeMs = Number.POSITIVE_INFINITY;
    admit();
  };

  const turnAt = (endpoint: Endpoint, { tokens, failed }: Waiting): Turn => {
    const { server, limit, pace, halvings } = endpoint;
    const heard = pace.sent(tokens);
    const isTrial = endpoint.openSinceMs !== undefined;
    endpoint.isTrying = isTrial;
    endpoint.requests += 1;
    endpoint.retries += failed === undefined ? 0 : 1;
    endpoint.inFlight += 1;
    endpoint.highest = Math.max(endpoint.highest, endpoint.inFlight);
    inFlight += 1;
    highest = Math.max(highest, inFlight);

    return {
      server,
      countRequest() {
        endpoint.requests += 1;
      },
      heard,
      pause(found, ms) {
        const mostMs = retry.maxSeconds * 1000;
        if (ms > mostMs && endpoints.length === 1) {
          const message = `${doing}: ${found}, and asks for a pause of ${Math.round(ms / 1000)} s`;
          throw new JobError("NETWORK", message, { hint: serverAway });
        }
        endpoint.pausedUntilMs = Math.max(endpoint.pausedUntilMs, retry.nowMs() + Math.min(ms, mostMs));
      },
      end(end) {
        endpoint.inFlight -= 1;
        inFlight -= 1;
        if (end.kind === "answered") {
          answers += 1;
          countLatency(endpoint.latencies, end.ms);
          limit.answered(end.rows, waiting.length > 0);
        }
        if (stopped !== undefined) {
          return; // the end of the attempt says nothing of its servers
        }

        if (end.kind === "answered" || end.kind === "works") {
          noteAnswer(endpoint);
        } else {
          endpoint.failures += 1;
          if (end.kind === "unavailable" || isTrial) {
            noteFailure(endpoint, end.found, isTrial);
          }
          if (end.kind !== "failed" && endpoint.halvings === halvings) {
            endpoint.halvings += limit.overloaded() ? 1 : 0;
          }
        }
        admit();
      },
    };
  };

  const traffic: ServerTraffic = {
    get requests() {
      return sumOf(endpoints, ({ requests }) => requests);
    },
    get retries() {
      return sumOf(endpoints, ({ retries }) => retries);
    },
    get inFlight() {
      return highest;
    },
    latencyMs: (share) => latencyOf(endpoints, share),
    get servers() {
      return (endpoints.length === 1 ? [] : endpoints).map((endpoint) => ({
        url: endpoint.server.url,
        requests: endpoint.requests,
        failures: endpoint.failures,
        inFlight: endpoint.highest,
        latencyMs: (share: number) => latencyOf([endpoint], share),
      }));
    },
  };

  return {
    traffic,
    /** Answers with predictions so far. */
    get answers() {
      return answers;
    },

    /**
     * Waits for a turn.
     * @param tokens of the request, as servers count them before they answer
     * @param failed the server that the request was sent to before; it is used only if there is no other
     * @throws JobError NETWORK if all servers have been unavailable for `retry.maxSeconds`; the error of `stop`
     */
    async begin(tokens: number, failed: ModelServer | undefined): Promise<Turn> {
      requireOpen();
      const turn = await new Promise<Turn>((resolve, reject) => {
        waiting.push({ tokens, failed, resolve, reject });
        admit();
      });
      requireOpen();
      return turn;
    },
    /** No request begins any more: those that wait, and later ones, end with the first such error. */
    stop,
  };
}

type Endpoint = ReturnType<typeof openEndpoint>;

function openEndpoint(server: ModelServer, isEager: boolean, hasOthers: boolean) {
  const { most, retry } = server;
  return {
    server,
    limit: isEager ? createEagerLimit(most) : createMeasuredLimit(most, retry.nowMs),
    pace: createHeaderPace(retry.nowMs),
    /** Of changes that only matter where there are other servers. */
    warn: (message: string): void => (hasOthers ? retry.warn(message) : undefined),
    inFlight: 0,
    /** The most requests that have been in flight. */
    highest: 0,
    halvings: 0,
    requests: 0,
    retries: 0,
    failures: 0,
    latencies: new Uint32Array(bucketCount),
    pausedUntilMs: 0,
    /** Failures since the last answer, and what was found last. */
    failuresInRow: 0,
    found: "",
    /** Since when it counts as unavailable; undefined: it answers. */
    openSinceMs: undefined as number | undefined,
    /** While it is unavailable: when it may be tried, whether it is being tried, and the pause after that. */
    triedAtMs: 0,
    isTrying: false,
    pauseMs: firstPauseMs,
  };
}

/** Failures in a row, without any answer, after which a server counts as unavailable. */
const mostFailures = 5;
const firstPauseMs = 100;
const longestPauseMs = 5000;

function noteAnswer(endpoint: Endpoint): void {
  const { server, openSinceMs } = endpoint;
  Object.assign(endpoint, { failuresInRow: 0, openSinceMs: undefined, isTrying: false, pauseMs: firstPauseMs });

  if (openSinceMs !== undefined) {
    endpoint.warn(`${server.url} answers again`);
  }
}

function noteFailure(endpoint: Endpoint, found: string, isTrial: boolean): void {
  const { server, openSinceMs, pauseMs } = endpoint;
  const { nowMs, random } = server.retry;
  endpoint.failuresInRow += 1;
  endpoint.found = found;
  const opens = openSinceMs === undefined && endpoint.failuresInRow >= mostFailures;

  if (isTrial || opens) {
    endpoint.isTrying = false;
    endpoint.triedAtMs = nowMs() + pauseMs * (0.5 + random() / 2);
    endpoint.pauseMs = Math.min(longestPauseMs, pauseMs * 2);
  }
  if (opens) {
    endpoint.openSinceMs = nowMs();
    endpoint.warn(`${server.url} is left out for now: ${found}`);
  }
}

function readyMs({ openSinceMs, isTrying, triedAtMs, pausedUntilMs, pace }: Endpoint, tokens: number): number {
  const trialMs = openSinceMs === undefined ? 0 : isTrying ? Number.POSITIVE_INFINITY : triedAtMs;
  return Math.max(trialMs, pausedUntilMs, pace.readyMs(tokens));
}

function bestOf(
  endpoints: readonly Endpoint[],
  { tokens, failed }: Pick<Waiting, "tokens" | "failed">,
  nowMs: number,
): Endpoint | undefined {
  let [best, least]: [Endpoint | undefined, number] = [undefined, Number.POSITIVE_INFINITY];
  for (const endpoint of endpoints) {
    const { server, limit, inFlight, openSinceMs } = endpoint;
    // One that is to be tried comes first: else it would never be used while another is below its limit.
    const rank = server === failed ? 2 : openSinceMs === undefined ? inFlight / limit.limit : -1;
    if (rank < least && inFlight < limit.limit && readyMs(endpoint, tokens) <= nowMs) {
      [best, least] = [endpoint, rank];
    }
  }
  return best;
}

function awayError(endpoints: readonly Endpoint[], doing: string): JobError | undefined {
  const { nowMs, maxSeconds } = (endpoints[0] as Endpoint).server.retry;
  const sinceMs = Math.max(...endpoints.map(({ openSinceMs = Number.POSITIVE_INFINITY }) => openSinceMs));
  const seconds = (nowMs() - sinceMs) / 1000;
  if (!(seconds > maxSeconds)) {
    return undefined;
  }

  const tries = sumOf(endpoints, ({ failuresInRow }) => failuresInRow);
  const found = [...new Set(endpoints.map((endpoint) => endpoint.found))].join("; ");
  return new JobError("NETWORK", `${doing}: ${found} (tried ${tries} times in ${Math.round(seconds)} s)`, {
    hint: serverAway,
  });
}

function sumOf(endpoints: readonly Endpoint[], count: (endpoint: Endpoint) => number): number {
  return endpoints.reduce((sum, endpoint) => sum + count(endpoint), 0);
}

/** Latencies are counted in buckets, whose number does not grow with the requests: eight for each doubling, up to 2^22 ms. */
const perDoubling = 8;
const bucketCount = 22 * perDoubling;

function countLatency(counts: Uint32Array, ms: number): void {
  const bucket = Math.min(bucketCount - 1, Math.floor(Math.log2(Math.max(1, ms)) * perDoubling));
  counts[bucket] = (counts[bucket] ?? 0) + 1;
}

/** The upper bound of the bucket that a share of the answers did not exceed; null without answers. */
function latencyOf(endpoints: readonly Endpoint[], share: number): number | null {
  const counts = Array.from({ length: bucketCount }, (_, bucket) =>
    sumOf(endpoints, ({ latencies }) => latencies[bucket] ?? 0),
  );
  const due = share * counts.reduce((sum, count) => sum + count, 0);

  let seen = 0;
  const reached = counts.findIndex((count) => {
    seen += count;
    return count > 0 && seen >= due;
  });
  return reached < 0 ? null : 2 ** ((reached + 1) / perDoubling);
}

interface Limit {
  readonly limit: number;
  /** Counts an answer. @param isLimiting whether other requests wait for a turn */
  answered(rows: number, isLimiting: boolean): void;
  /** Returns whether the limit was halved. */
  overloaded(): boolean;
}

const firstLimit = 2;
/** Answers in a measurement, for each request that may be in flight. */
const answersEach = 3;
const fewestAnswers = 12;
/** A higher limit is kept if it raises the throughput by this share; a doubled one, by that. */
const [gain, gainOfDoubling] = [0.03, 0.15];
/** Measurements after a limit was lowered, before it is raised again. */
const restRounds = 8;

/**
 * The limit doubles while that raises the throughput by much, then grows slowly while it raises it at all. The throughput
 * is measured in rounds of a few answers, in which requests wait all the time.
 */
function createMeasuredLimit(most: number, nowMs: () => number): Limit {
  let limit = Math.min(firstLimit, most);
  let isDoubling = true;
  /** The throughput that a raised limit is compared with. */
  let before: { readonly limit: number; readonly rate: number } | undefined;
  let rest = 0;
  let [toSkip, toCount, counted, startedMs, isFull] = [0, 0, 0, 0, true];

  const startRound = (): void => {
    // Answers to requests of the round before show its limit.
    [toSkip, toCount, counted, startedMs, isFull] = [
      limit,
      Math.max(fewestAnswers, limit * answersEach),
      0,
      nowMs(),
      true,
    ];
  };

  const lower = (to: number): void => {
    [limit, isDoubling, before, rest] = [to, false, undefined, to === 1 ? 0 : restRounds];
  };

  const judge = (rate: number): void => {
    if (rest > 0) {
      rest -= 1;
    } else if (before !== undefined && rate < before.rate * (1 + (isDoubling ? gainOfDoubling : gain))) {
      lower(before.limit);
    } else {
      const raised = Math.min(most, isDoubling ? limit * 2 : limit + Math.max(1, Math.floor(limit / 8)));
      before = raised === limit ? undefined : { limit, rate };
      limit = raised;
    }
  };

  startRound();
  return {
    get limit() {
      return limit;
    },
    answered(rows, isLimiting) {
      if (toSkip > 0) {
        toSkip -= 1;
        startedMs = nowMs();
        return;
      }

      counted += rows;
      isFull &&= isLimiting;
      toCount -= 1;
      if (toCount === 0) {
        if (isFull) {
          judge(counted / Math.max(1, nowMs() - startedMs));
        }
        startRound();
      }
    },
    overloaded() {
      lower(Math.max(1, Math.floor(limit / 2)));
      startRound();
      return true;
    },
  };
}

const firstEagerLimit = 16;
/** A failure is forgotten after so many answers; so many failures that are not halve the limit. */
const answersToForget = 20;
const failuresToHalve = 3;

/**
 * As TCP does: the limit grows by one for each answer until the server is overloaded, and then by one for as many answers
 * as it is high. For servers that take long for an answer, and answer many requests at once: a measurement would take
 * minutes. A connection that breaks now and then is no overload: if each halved the limit, 1% of them would hold it at
 * 15 requests, by TCP's law of the square root.
 */
function createEagerLimit(most: number): Limit {
  let limit = Math.min(firstEagerLimit, most);
  let [wasOverloaded, failures] = [false, 0];
  return {
    get limit() {
      return Math.floor(limit);
    },
    answered(rows, isLimiting) {
      failures = Math.max(0, failures - 1 / answersToForget);
      if (isLimiting) {
        limit = Math.min(most, limit + (wasOverloaded ? rows / limit : rows));
      }
    },
    overloaded() {
      failures += 1;
      const halves = failures > failuresToHalve - 1;
      if (halves) {
        [limit, failures, wasOverloaded] = [Math.max(1, limit / 2), 0, true];
      }
      return halves;
    },
  };
}

/**
 * Spreads requests as a server's headers say, so that it need not refuse any.
 * @param nowMs milliseconds of a clock that only grows
 * @public so that tests count turns
 */
export function createHeaderPace(nowMs: () => number) {
  const [requests, tokens] = [createBucket("requests", nowMs), createBucket("tokens", nowMs)];
  return {
    /** The time from which on a request of so many tokens may be sent. */
    readyMs: (count: number) => Math.max(requests.readyMs(1), tokens.readyMs(count)),
    /** Counts a request that is sent. Returns what learns from the headers of its answer, or of a refusal. */
    sent(count: number) {
      const learn = [requests.take(1), tokens.take(count)];
      return (headers: ResponseHeaders): void => {
        for (const one of learn) {
          one(headers);
        }
      };
    },
  };
}

/** Whether a refusal's headers say that neither requests nor tokens are used up: only this request must wait. @public so that tests see it */
export function hasRoom(headers: ResponseHeaders): boolean {
  const left = ["requests", "tokens"].map((kind) => headers.get(`x-ratelimit-remaining-${kind}`));
  return left.some((one) => one !== null) && left.every((one) => one === null || Number(one) > 0);
}

const minuteMs = 60_000;

/** What a server allows in a minute, of requests or of tokens: a bucket that fills up steadily. */
function createBucket(kind: "requests" | "tokens", nowMs: () => number) {
  /** undefined: the server names no limit. */
  let perMs: number | undefined;
  /** `sent`: all that was sent so far. */
  let [capacity, level, levelMs, sent] = [0, 0, 0, 0];

  const levelAt = (ms: number): number => Math.min(capacity, level + (ms - levelMs) * (perMs ?? 0));

  return {
    /** From when on so much may be sent. More than the bucket holds waits until it is full. */
    readyMs(count: number): number {
      if (perMs === undefined) {
        return 0;
      }
      const ms = nowMs();
      const missing = Math.min(count, capacity) - levelAt(ms);
      return missing <= 0 ? 0 : ms + missing / perMs;
    },
    take(count: number): (headers: ResponseHeaders) => void {
      const sentMs = nowMs();
      [level, levelMs] = [levelAt(sentMs) - count, sentMs];
      sent += count;
      const sentThen = sent;

      // The headers say what was left when the request came; what was sent since then is not in it.
      return (headers) => {
        const limit = numberOf(headers.get(`x-ratelimit-limit-${kind}`));
        const remaining = numberOf(headers.get(`x-ratelimit-remaining-${kind}`));
        if (limit === undefined || remaining === undefined || limit <= 0) {
          return;
        }
        perMs = limit / minuteMs;
        const resetMs = durationMs(headers.get(`x-ratelimit-reset-${kind}`));
        capacity = Math.max(1, resetMs === undefined ? limit : Math.min(limit, remaining + resetMs * perMs));
        levelMs = nowMs();
        level = Math.min(capacity, remaining + (levelMs - sentMs) * perMs) - (sent - sentThen);
      };
    },
  };
}

function numberOf(text: string | null): number | undefined {
  return text !== null && /^\d+(\.\d+)?$/.test(text) ? Number(text) : undefined;
}

const unitsMs: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A duration as OpenAI's headers have it ("6m0s", "8.64s", "12ms"), or seconds. */
function durationMs(text: string | null): number | undefined {
  if (text === null || text === "") {
    return undefined;
  }
  if (/^\d+(\.\d+)?$/.test(text)) {
    return Number(text) * 1000;
  }
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)];
  return parts.length === 0
    ? undefined
    : parts.reduce((sum, [, count, unit]) => sum + Number(count) * (unitsMs[unit ?? ""] ?? 0), 0);
}

interface Question<T> {
  readonly encoded: EncodedRequest;
  /** The most bytes of its answer. */
  readonly mostBytes: number;
  readonly rows: number;
  /** The tokens that it takes, as servers count them before they answer. */
  readonly tokens: number;
  /** Failures of servers on it, before its rows may be the reason. */
  readonly mostFaults: number;
  /** Waits until it may be sent: before its turn, since it must not hold up those that it waits for. */
  ready(this: void): Promise<void>;
  /** Called where its answer was lost. */
  onLost(this: void): void;
  /** Reads an answer. @throws BrokenTransfer, ServerFault if it may be sent again; JobError otherwise */
  read(this: void, received: Received, from: AskedServer): T;
  /** What a refusal means for the request; undefined: no more than for any other. @throws as `read` */
  refused(this: void, found: RefusalKind, refusal: Refusal, from: AskedServer): T | undefined | Promise<T | undefined>;
  /**
   * Whether a server that has failed on it answers another request: then its rows are the reason. undefined: there is none.
   * @param answered other requests were answered since it first failed
   */
  works(this: void, turn: Turn, answered: boolean): Promise<boolean | undefined>;
}

/** `doing`: the act that messages begin with. */
export interface AskedServer {
  readonly server: ModelServer;
  readonly doing: string;
}

export interface RefusedRows {
  readonly kind: "refused";
  /** undefined: the server does not take them, or fails on them. */
  readonly reason: AnswerFault | undefined;
  readonly message: string;
}

class RateLimited extends BrokenTransfer {
  /** How long this request alone must wait; 0: all of them must. */
  readonly waitMs: number;

  constructor(message: string, waitMs: number) {
    super(message);
    this.waitMs = waitMs;
  }
}

/** A server that had the model does not know it. It may have restarted, and be loading it. */
export class UnknownModel extends BrokenTransfer {
  /** The error if it does not come back. */
  readonly lasting: JobError;

  constructor(message: string, lasting: JobError) {
    super(message);
    this.lasting = lasting;
  }
}

/** What a refusal means that says nothing of the request itself. @throws what ends the request, or has it sent again */
function refuse(turn: Turn, found: RefusalKind, refusal: Refusal, doing: string): never {
  const { message } = found;
  if (found.kind === "fault") {
    throw new ServerFault(message);
  }
  if (found.kind !== "overloaded") {
    throw refusalOf(turn.server, doing, refusal);
  }
  const { retryAfterMs, isRate } = found;
  if (isRate && hasRoom(refusal.headers)) {
    throw new RateLimited(message, Math.min(retryAfterMs, turn.server.retry.maxSeconds * 1000));
  }
  turn.pause(message, retryAfterMs);
  throw isRate ? new RateLimited(message, 0) : new BrokenTransfer(message);
}

/** Errors of a connection that was never made. */
const unsent: ReadonlySet<string> = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"]);

/**
 * Asks the servers that have a model.
 * @param act what messages begin with, before the names of servers: "scoring with"
 * @param urlOf the URL of a server that requests go to
 * @param how whether limits grow as for `openTurns`, and whether a request is sent again when a connection that was used
 *   before is closed without an answer
 */
export function openAsking(
  servers: ModelServers,
  act: string,
  urlOf: (server: ModelServer) => string,
  { isEager, mayResend }: { readonly isEager: boolean; readonly mayResend: boolean },
) {
  const all = `${act} ${serversText(servers)}`;
  const turns = openTurns(servers, all, isEager);
  const [{ retry }] = servers;
  const judge = ({ server }: Turn, error: unknown): RetryVerdict =>
    error instanceof ServerFault
      ? { kind: "again", found: error.message }
      : verdictOf(placeOf(server, `${act} ${serverText(server)}`), error);

  /** @param onLost called unless it was never sent */
  const postTo = async (
    server: ModelServer,
    { encoded, mostBytes, onLost }: Pick<Question<unknown>, "encoded" | "mostBytes" | "onLost">,
  ): Promise<Received> => {
    try {
      return await post(server, urlOf(server), encoded, mostBytes, mayResend);
    } catch (error) {
      if (!unsent.has(errnoOf(error) ?? "")) {
        onLost();
      }
      throw error;
    }
  };
  const send = async <T>(question: Question<T>, turn: Turn): Promise<T> => {
    const { server } = turn;
    const doing = `${act} ${serverText(server)}`;
    const received = await postTo(server, question);
    const { status, headers } = received;
    turn.heard(headers);
    if (status === 200) {
      return question.read(received, { server, doing });
    }
    const refusal = { status, headers, said: received.said() };
    const found = refusalKind(refusal);
    return (await question.refused(found, refusal, { server, doing })) ?? refuse(turn, found, refusal, doing);
  };

  return {
    traffic: turns.traffic,
    get answers() {
      return turns.answers;
    },
    /** Ends all requests with the first error that ends the attempt: each of them could cost money. */
    stop: turns.stop,

    /**
     * Asks until a server has answered or refused: a server that does not answer, fails, or takes no requests now is asked
     * again, or another one.
     * @returns what became of it, and how long that took; an outcome of the kind "answered" is one with predictions
     * @throws JobError NETWORK (75) after all retries, PERMISSION, FILE_MISSING, MODEL_INVALID; what the question throws
     */
    async ask<T extends { readonly kind: string }>(question: Question<T>) {
      let last: ModelServer | undefined;
      /** The last failure of a try. What is thrown elsewhere ends the request. */
      let failure: { readonly error: unknown; readonly verdict: RetryVerdict } | undefined;
      /** Failures of servers on this request; answers of others before the first one, and before the last try. */
      let [faults, answersBefore, answersAtFailure, waitMs] = [0, 0, turns.answers, 0];

      const tryOnce = async (): Promise<(T | RefusedRows) & { readonly ms: number }> => {
        await (waitMs > 0 ? retry.sleep(waitMs) : undefined);
        await question.ready();
        const turn = await turns.begin(question.tokens, last);
        last = turn.server;
        const startedMs = retry.nowMs();
        let end: RequestEnd = { kind: "works" };
        try {
          const outcome = await send(question, turn);
          const ms = retry.nowMs() - startedMs;
          end = outcome.kind === "answered" ? { kind: "answered", rows: question.rows, ms } : end;
          return { ...outcome, ms };
        } catch (error) {
          const verdict = judge(turn, error);
          if (verdict.kind === "end") {
            turns.stop(verdict.error);
            failure = { error, verdict };
            throw error;
          }

          const { found } = verdict;
          const limited = error instanceof RateLimited ? error : undefined;
          // Requests may wait longer for their turn than for a server that is away: it is there if others were answered.
          const isNew = limited !== undefined && turns.answers > answersAtFailure;
          failure = { error, verdict: { ...verdict, isNew } };
          answersAtFailure = turns.answers;
          waitMs = limited?.waitMs ?? 0;
          if (!(error instanceof ServerFault)) {
            // A server that does not know its model, or that asks this request alone to wait, is there.
            const isThere = error instanceof UnknownModel || waitMs > 0;
            end = { kind: isThere ? "failed" : limited === undefined ? "unavailable" : "overloaded", found };
            throw error;
          }

          end = { kind: "failed", found };
          answersBefore = faults === 0 ? turns.answers : answersBefore;
          faults += 1;
          const works =
            faults >= question.mostFaults ? await question.works(turn, turns.answers > answersBefore) : undefined;
          if (works === true) {
            end = { kind: "works" };
            return { kind: "refused", reason: undefined, message: found, ms: 0 };
          }
          end = works === false ? { kind: "unavailable", found } : end;
          throw error;
        } finally {
          turn.end(end);
        }
      };

      const rules = {
        judge: (error: unknown): RetryVerdict =>
          failure !== undefined && error === failure.error ? failure.verdict : { kind: "end", error },
        code: "NETWORK",
        hint: serverAway,
      } as const;
      return await tryAgain(all, retry, rules, tryOnce);
    },

    /** The answer of a server to one more request, which is of no row; undefined: it does not answer it. */
    async control(
      { server, countRequest }: Turn,
      request: Pick<Question<unknown>, "encoded" | "mostBytes" | "onLost">,
    ): Promise<Received | undefined> {
      countRequest();
      const received = await postTo(server, request).catch(() => undefined);
      server.signal.throwIfAborted();
      return received?.status === 200 ? received : undefined;
    },
  };
}

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

/**
 * Asks for predictions: over a connection of the pool, since Node's HTTP client takes several times as long, unless there
 * is a proxy.
 * @throws BrokenTransfer after `timeoutMs`; ServerFault for a larger answer; what `connections` and `sendRequest` throw
 */
async function post(
  server: ModelServer,
  inferUrl: string,
  { body, headers: ofBody }: EncodedRequest,
  mostBytes: number,
  mayResend: boolean,
): Promise<Received> {
  const { signal, timeoutMs, tls, connections } = server;
  const url = new URL(inferUrl);
  const own = await headersNow(server.headers);
  const plain = { ...own, ...ofBody };
  const headers = (await server.sign?.({ method: "POST", url, headers: plain, body })) ?? plain;
  // AWS quotes these headers of a signature when it refuses one.
  const signed = { login: headers["authorization"] ?? "", token: headers["x-amz-security-token"] ?? "" };
  const credentials = { ...own, ...server.hidden, ...signed };
  const receivedAs = (answer: Omit<Received, "said">): Received => ({
    ...answer,
    said: () => withoutValues(Buffer.from(answer.body).toString("utf8"), credentials),
  });

  const proxy = server.findProxy(url);
  if (proxy !== undefined) {
    using watch = startTimeout(signal, timeoutMs, tookTooLong);
    const response = await sendRequest(url, { method: "POST", headers, body, proxy, signal: watch.signal, tls });
    const { status, headers: received } = response;
    return receivedAs({ status, headers: received, body: await readAll(readBody(response, watch.signal), mostBytes) });
  }
  const head = requestHead("POST", `${url.pathname}${url.search}`, { host: url.host, ...headers });
  const pieces = createCollector(mostBytes);
  const onHeaders = (): ((chunk: Uint8Array) => void) => (chunk) => pieces.collect(new Uint8Array(chunk)); // it is overwritten
  const exchange = { head, body, signal, timeoutMs, mayResend, onHeaders };
  const { status, headers: received } = await connections.exchange(originOf(url), exchange);
  const encoding = received["content-encoding"];
  const sent = pieces.collected();
  // The request asks for no compression, but a proxy in front of the server may compress anyway.
  const whole = encoding === undefined ? sent : await readAll(decompressed(Readable.from([sent]), encoding), mostBytes);
  return receivedAs({ status, headers: { get: (name) => received[name] ?? null }, body: whole });
}

async function readAll(pieces: AsyncIterable<Uint8Array>, mostBytes: number): Promise<Uint8Array<ArrayBuffer>> {
  const collector = createCollector(mostBytes);
  for await (const piece of pieces) {
    collector.collect(piece);
  }
  return collector.collected();
}

function createCollector(mostBytes: number) {
  const pieces: Uint8Array[] = [];
  let size = 0;
  return {
    collect(piece: Uint8Array) {
      size += piece.length;
      if (size > mostBytes) {
        const mebibytes = Math.floor(mostBytes / 2 ** 20);
        throw new ServerFault(`the answer has more than ${mebibytes} MiB, far more than was asked for`);
      }
      pieces.push(piece);
    },
    /** A view that is no Buffer, whose `slice` would not copy. */
    collected(): Uint8Array<ArrayBuffer> {
      const { buffer, byteOffset, length } = pieces.length === 1 ? (pieces[0] as Uint8Array) : Buffer.concat(pieces);
      return new Uint8Array(buffer as ArrayBuffer, byteOffset, length);
    },
  };
}
