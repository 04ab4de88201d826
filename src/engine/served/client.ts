import { BrokenTransfer, verdictOf } from "../../net/http-failures.js";
import type { HttpPlace } from "../../net/http-place.js";
import { assertNever, JobError } from "../../util/errors.js";
import { tryAgain, type Verdict } from "../../util/retry.js";
import type { ServerTraffic } from "../port.js";
import { type Refusal, refusalKind } from "./refusals.js";
import { createInFlightLimit, type InFlightLimit, type RequestEnd } from "./in-flight-limit.js";
import { UnfitValue } from "./json.js";
import { type Answer, type EncodedRequest, type Expected, MalformedAnswer } from "./message.js";
import type { Protocol, RequestedVersion } from "./protocol.js";
import { type ModelServer, placeOf, refusalOf, serverText } from "./server.js";
import { isReady, post, type Received } from "./transport.js";
import { countTraffic, type TrafficCounter } from "./traffic.js";

/** The outcome of a request, after retries. */
export type Outcome =
  | { readonly kind: "answered"; readonly answer: Answer; readonly ms: number }
  /** The model refuses the values. */
  | { readonly kind: "refused"; readonly message: string }
  /** The server takes no request of so many rows or bytes. */
  | { readonly kind: "too large"; readonly message: string };

export interface InferenceRequest {
  readonly encoded: EncodedRequest;
  readonly rows: number;
  /** The rows are made up: a fault of the server is about them until it has answered others. */
  readonly isBlank?: true | undefined;
  readonly wanted: Expected["outputs"];
}

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

/** The server failed without saying that this is temporary (500). */
class ServerFault extends Error {}

/** Failures of the server on a batch, and on a single row, before it may be the values that make it fail. */
const faultsOfBatch = 3;
const faultsOfRow = 5;

export interface ClientOptions {
  readonly protocol: Protocol;
  readonly server: ModelServer;
  readonly version: RequestedVersion;
}

interface ClientState extends ClientOptions {
  readonly place: HttpPlace;
  readonly limit: InFlightLimit;
  readonly counter: TrafficCounter;
  /** Nothing is sent before. */
  pausedUntilMs: number;
  /** A small request that the server answered. */
  control?: EncodedRequest;
  /** The version in the answers so far. */
  answered?: string | undefined;
  warnedMs: number;
}

export function openClient({ protocol, server, version }: ClientOptions): InferenceClient {
  const limit = createInFlightLimit({ most: server.most, nowMs: server.retry.nowMs });
  const counter = countTraffic(() => limit.highest);
  const place = placeOf(server, `scoring with ${serverText(server)}`);
  const state: ClientState = {
    protocol,
    server,
    version,
    place,
    limit,
    counter,
    pausedUntilMs: 0,
    warnedMs: Number.NEGATIVE_INFINITY,
  };
  return { traffic: counter.traffic, infer: (request) => infer(state, request) };
}

async function infer(state: ClientState, request: InferenceRequest): Promise<Outcome> {
  const { server, place } = state;
  const retry = { ...server.retry, warn: (message: string) => warnSometimes(state, message) };
  const rules = { judge: (error: unknown) => judge(place, error), code: "NETWORK", hint: place.hint } as const;
  let faults = 0;
  let isRetry = false;
  return await tryAgain(place.doing, retry, rules, async () => {
    const turn = await state.limit.begin();
    let end: RequestEnd = { kind: "other" };
    try {
      await pause(state);
      state.counter.sent(isRetry);
      isRetry = true;
      const startedMs = server.retry.nowMs();
      const received = await post(server, inferUrl(state), request.encoded);
      const outcome = await outcomeOf(state, request, { received, startedMs });
      end = outcome.kind === "answered" ? { kind: "answered", rows: request.rows } : end;
      return outcome;
    } catch (error) {
      if (error instanceof ServerFault) {
        faults += 1;
        const enough = faults >= (request.rows === 1 ? faultsOfRow : faultsOfBatch);
        if (enough && (request.isBlank === true || (await controlAnswers(state)))) {
          return { kind: "refused", message: error.message };
        }
      } else if (judge(place, error).kind === "again") {
        end = { kind: "overloaded" };
      }
      throw error;
    } finally {
      turn.end(end);
    }
  });
}

function inferUrl({ protocol, server, version }: ClientOptions): string {
  return protocol.inferUrl(server, version);
}

/** Seconds between two warnings about retries: all requests in flight fail together. */
const warningSeconds = 10;

function warnSometimes(state: ClientState, message: string): void {
  const { nowMs, warn } = state.server.retry;
  if (nowMs() - state.warnedMs >= warningSeconds * 1000) {
    state.warnedMs = nowMs();
    warn(message);
  }
}

/** Waits until requests may be sent again. */
async function pause(state: ClientState): Promise<void> {
  const { retry, signal } = state.server;
  for (let ms = state.pausedUntilMs - retry.nowMs(); ms > 0; ms = state.pausedUntilMs - retry.nowMs()) {
    await retry.sleep(ms);
  }
  signal.throwIfAborted();
}

async function outcomeOf(
  state: ClientState,
  request: InferenceRequest,
  { received, startedMs }: { readonly received: Received; readonly startedMs: number },
): Promise<Outcome> {
  if (received.status !== 200) {
    const { status, headers, body } = received;
    const said = Buffer.from(body).toString("utf8");
    return await refusedOutcome(state, { status, headers, said });
  }
  const ms = state.server.retry.nowMs() - startedMs;
  state.counter.answered(ms);
  try {
    const answer = state.protocol.decode(received, { outputs: request.wanted, rows: request.rows });
    checkVersion(state, answer);
    keepControl(state, request);
    return { kind: "answered", answer, ms };
  } catch (error) {
    if (error instanceof UnfitValue) {
      return { kind: "refused", message: `the answer has ${error.message}` };
    }
    if (error instanceof MalformedAnswer) {
      throw new JobError("MODEL_INVALID", `${state.place.doing}: reading the answer: ${error.message}`, {
        hint: "the server's answers do not match the protocol, or what the metadata or model.server.signature says of the model",
      });
    }
    throw error;
  }
}

function checkVersion(state: ClientState, { version: answered }: Answer): void {
  const expected = state.version.version ?? state.answered;
  if (answered !== undefined && expected !== undefined && answered !== expected) {
    throw new JobError(
      "MODEL_CHANGED",
      `${state.place.doing}: version ${answered} answered, and this run is scored with version ${expected}`,
      { hint: "serve that version again and run the same command; or give this run up with --new-run" },
    );
  }
  state.answered ??= answered;
}

/** Keeps a copy of the smallest request that was answered: its memory is used again. */
function keepControl(state: ClientState, { encoded }: InferenceRequest): void {
  if (state.control === undefined || encoded.sizeBytes < state.control.sizeBytes) {
    state.control = { ...encoded, body: encoded.body.map((piece) => new Uint8Array(piece)) };
  }
}

/** Whether the server answers a request that it has answered before: then it works, and the values make it fail. */
async function controlAnswers(state: ClientState): Promise<boolean> {
  if (state.control === undefined) {
    return false;
  }
  state.counter.sent(false);
  const received = await post(state.server, inferUrl(state), state.control).catch(() => undefined);
  state.server.signal.throwIfAborted();
  return received?.status === 200;
}

async function refusedOutcome(state: ClientState, refusal: Refusal): Promise<Outcome> {
  const { server, version } = state;
  const { doing, hint } = state.place;
  const found = refusalKind(refusal);
  switch (found.kind) {
    case "values":
      return { kind: "refused", message: found.message };
    case "too large":
      return { kind: "too large", message: found.message };
    case "fault":
      throw new ServerFault(found.message);
    case "overloaded": {
      const { retry } = server;
      if (found.retryAfterMs > retry.maxSeconds * 1000) {
        const seconds = Math.round(found.retryAfterMs / 1000);
        throw new JobError("NETWORK", `${doing}: ${found.message}, and asks for a pause of ${seconds} s`, {
          hint,
        });
      }
      state.pausedUntilMs = Math.max(state.pausedUntilMs, retry.nowMs() + found.retryAfterMs);
      throw new BrokenTransfer(found.message);
    }
    case "gone":
      // While a server starts, it does not know all of its models.
      if (!(await isServerReady(state))) {
        throw new BrokenTransfer(found.message);
      }
      if (version.version !== undefined) {
        throw new JobError(
          "MODEL_CHANGED",
          `${doing}: ${found.message}; this run is scored with version ${version.version}`,
          {
            hint: "serve that version again and run the same command; or give this run up with --new-run",
          },
        );
      }
      throw refusalOf(doing, refusal);
    case "other":
      throw refusalOf(doing, refusal);
    default:
      return assertNever(found);
  }
}

/** Whether the server says that it is ready. One that cannot say is taken to be. */
async function isServerReady({ protocol, server }: ClientOptions): Promise<boolean> {
  const url = protocol.readyUrl(server);
  return url === undefined || (await isReady(server, url));
}

function judge(place: HttpPlace, error: unknown): Verdict {
  return error instanceof ServerFault ? { kind: "again", found: error.message } : verdictOf(place, error);
}
