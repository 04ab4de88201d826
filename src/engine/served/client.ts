import { constants } from "node:buffer";
import { JobError } from "../../util/errors.js";
import { tryAgain } from "../../util/retry.js";
import type { ServerTraffic } from "../port.js";
import { type ClientOptions, type ClientState, type Endpoint, openEndpoint, trafficOf } from "./client-state.js";
import type { RequestEnd } from "./in-flight-limit.js";
import { ServerFault } from "./message.js";
import { type InferenceRequest, judge, type Outcome, outcomeOf, UnknownModel } from "./outcome.js";
import { createPool, type PooledTurn } from "./pool.js";
import { type ModelServer, placeOf, serversText } from "./server.js";
import { countTraffic } from "./traffic.js";
import { post, usualAnswerBytes } from "./transport.js";

/** Sends requests for predictions. */
export interface InferenceClient {
  readonly traffic: ServerTraffic;
  /**
   * Sends a request until it is answered or refused. Predictions have no effects, so a request whose answer was lost is
   * sent again.
   * @throws JobError NETWORK (75) after all retries, PERMISSION, FILE_MISSING, MODEL_INVALID, MODEL_CHANGED
   */
  infer(request: InferenceRequest): Promise<Outcome>;
}

/** Failures of the server on a batch, and on a single row, before it may be the values that make it fail. */
const faultsOfBatch = 3;
const faultsOfRow = 5;

/** @throws RangeError without servers */
export function openClient({ protocol, servers, version, isPlanned }: ClientOptions): InferenceClient {
  const [first] = servers;
  if (first === undefined) {
    throw new RangeError("a client needs a server");
  }
  const { retry } = first;
  const endpoints = servers.map((server) => openEndpoint(server, { hasOthers: servers.length > 1 }));
  const place = placeOf(first, `scoring with ${serversText(servers)}`);
  const pool = createPool({ servers: endpoints, retry, doing: place.doing, hint: place.hint });
  const counter = countTraffic();
  const state: ClientState = { protocol, version, isPlanned, endpoints, pool, place, counter };
  return { traffic: trafficOf(state), infer: (request) => infer(state, request) };
}

async function infer(state: ClientState, request: InferenceRequest): Promise<Outcome> {
  const { place } = state;
  const rules = { judge: (error: unknown) => judge(place, error), code: "NETWORK", hint: place.hint } as const;
  const tries: Tries = { faults: 0, last: undefined };
  const tried = tryAgain(place.doing, place.retry, rules, async () => {
    const turn = await state.pool.begin(tries.last);
    let end: RequestEnd = { kind: "other" };
    try {
      place.signal.throwIfAborted();
      const outcome = await send(state, request, { endpoint: turn.server, isRetry: tries.last !== undefined });
      turn.server.breaker.answered();
      end = outcome.kind === "answered" ? { kind: "answered", rows: request.rows } : end;
      return outcome;
    } catch (error) {
      const failed = await failureOf(state, request, { error, tries, turn });
      end = failed.end;
      if (failed.outcome !== undefined) {
        return failed.outcome;
      }
      throw error;
    } finally {
      tries.last = turn.server;
      turn.end(end);
    }
  });
  return await tried.catch((error: unknown) => {
    throw error instanceof JobError && error.cause instanceof UnknownModel ? error.cause.lasting : error;
  });
}

/** What became of a request so far. */
interface Tries {
  /** Failures of a server on it. */
  faults: number;
  /** The server that it was sent to last. */
  last: Endpoint | undefined;
}

async function send(
  state: ClientState,
  request: InferenceRequest,
  { endpoint, isRetry }: { readonly endpoint: Endpoint; readonly isRetry: boolean },
): Promise<Outcome> {
  const { server } = endpoint;
  state.counter.sent(isRetry);
  endpoint.counter.sent(isRetry);
  const startedMs = server.retry.nowMs();
  const received = await post(server, inferUrl(state, server), request.encoded, {
    mayResend: true,
    mostBytes: answerBytes(request),
  });
  return await outcomeOf(state, request, { endpoint, received, startedMs });
}

/** A text cannot be longer: 512 MiB. */
const largestAnswer = constants.MAX_STRING_LENGTH;
/** Bytes of a value in JSON, of a text, and values of a row where the model does not say how many it has. */
const [numberBytes, textBytes, anyWidth] = [64, 4096, 16_384];

/** The most bytes of the answer to a request. It may quote the request. */
function answerBytes({ wanted, rows, encoded }: InferenceRequest): number {
  const bytesOfRow = wanted.reduce((sum, { dtype, shape: [, width = 1] }) => {
    return sum + (width ?? anyWidth) * (dtype === "string" ? textBytes : numberBytes);
  }, 0);
  return Math.min(largestAnswer, usualAnswerBytes + encoded.sizeBytes + rows * bytesOfRow);
}

interface FailedTry {
  readonly error: unknown;
  readonly tries: Tries;
  readonly turn: PooledTurn<Endpoint>;
}

/** Counts a failure. Returns the outcome if the values are why the server fails. */
async function failureOf(
  state: ClientState,
  request: InferenceRequest,
  { error, tries, turn: { server: endpoint, sent } }: FailedTry,
): Promise<{ readonly end: RequestEnd; readonly outcome?: Outcome }> {
  const { breaker, counter } = endpoint;
  if (!(error instanceof ServerFault)) {
    const verdict = judge(endpoint.place, error);
    if (verdict.kind === "end") {
      breaker.ended(sent);
      return { end: { kind: "other" } };
    }
    counter.failed();
    if (error instanceof UnknownModel) {
      breaker.ended(sent); // the server works: a request that waited for the breaker would end as if it did not
      return { end: { kind: "other" } };
    }
    breaker.failed(verdict.found, sent);
    return { end: { kind: "overloaded" } };
  }
  counter.failed();
  tries.faults += 1;
  const enough = tries.faults >= (request.rows === 1 ? faultsOfRow : faultsOfBatch);
  const control = enough && request.isBlank !== true ? await controlAnswers(state, endpoint) : undefined;
  if (enough && (request.isBlank === true || control === true)) {
    breaker.answered();
    return { end: { kind: "other" }, outcome: { kind: "refused", message: error.message } };
  }
  if (control === false || sent !== undefined) {
    breaker.failed(error.message, sent);
  }
  return { end: { kind: "other" } };
}

function inferUrl({ protocol, version }: Pick<ClientState, "protocol" | "version">, server: ModelServer): string {
  return protocol.inferUrl(server, version);
}

/**
 * Whether a server answers a request that was answered before: then it works, and the values make it fail. undefined:
 * none was answered.
 */
async function controlAnswers(state: ClientState, { server, counter }: Endpoint): Promise<boolean | undefined> {
  if (state.control === undefined) {
    return undefined;
  }
  state.counter.sent(false);
  counter.sent(false);
  const options = { mayResend: true, mostBytes: largestAnswer };
  const received = await post(server, inferUrl(state, server), state.control, options).catch(() => undefined);
  server.signal.throwIfAborted();
  return received?.status === 200;
}
