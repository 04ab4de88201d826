import type { AnswerFault } from "../../columnar/types.js";
import { BrokenTransfer } from "../../net/http-failures.js";
import type { HttpPlace } from "../../net/http-place.js";
import { assertNever, errnoOf, JobError } from "../../util/errors.js";
import { tryAgain } from "../../util/retry.js";
import type { ServerTraffic } from "../port.js";
import { type Endpoint, openEndpoint, trafficOf } from "../served/client-state.js";
import type { RequestEnd } from "../served/in-flight-limit.js";
import { encodedRequest, MalformedAnswer } from "../served/message.js";
import { judge, pauseAsAsked, ServerFault } from "../served/outcome.js";
import { createPool, type Pool } from "../served/pool.js";
import { type ModelServer, placeOf, refusalOf, serversText } from "../served/server.js";
import { countTraffic, type TrafficCounter } from "../served/traffic.js";
import { post } from "../served/transport.js";
import { type ModelAnswer, readAnswerBody } from "./answer.js";
import type { Reservation } from "./budget.js";
import { type PromptRefusal, promptRefusal } from "./refusals.js";
import type { AskedPrompt, PromptTask, RequestForm } from "./request.js";

/** What became of a request, after retries. */
export type Asked =
  | { readonly kind: "answered"; readonly answer: ModelAnswer; readonly ms: number }
  /** The server refuses the row. */
  | { readonly kind: "refused"; readonly reason: AnswerFault | undefined; readonly message: string }
  /** The server refuses the form of the request. It may take this one. */
  | { readonly kind: "form"; readonly form: RequestForm; readonly message: string };

export interface PromptRequest {
  readonly asked: AskedPrompt;
  readonly form: RequestForm;
  readonly reservation: Pick<Reservation, "lost">;
}

/** Sends prompts. */
export interface PromptClient {
  readonly traffic: ServerTraffic;
  /** Requests whose answer was lost. */
  readonly lost: number;
  /**
   * Sends a request until it is answered or refused.
   * @throws JobError NETWORK (75) after all retries; QUOTA (67); PERMISSION, FILE_MISSING, MODEL_INVALID (64)
   */
  ask(request: PromptRequest): Promise<Asked>;
}

export interface PromptClientOptions {
  readonly kind: PromptTask["kind"];
  /** At least one; all have the same model. */
  readonly servers: readonly [ModelServer, ...ModelServer[]];
  /** A small request, which costs next to nothing: its answer shows that a server works. */
  readonly control: () => AskedPrompt;
  /** Called with the answer to the small request. */
  readonly onControl: (answer: ModelAnswer) => void;
}

interface ClientState extends PromptClientOptions {
  readonly endpoints: readonly Endpoint[];
  readonly pool: Pool<Endpoint>;
  readonly place: HttpPlace;
  readonly counter: TrafficCounter;
  /** Answers so far. */
  answers: number;
  lost: number;
  /** The error that ends the attempt: no further request is sent. */
  ended: { readonly error: unknown } | undefined;
  /** How often the server refused a row before it answered any, by what it said. */
  readonly refusals: Map<string, number>;
}

/** Failures of the server on a row, before it may be the row that makes it fail. */
const faultsOfRow = 5;
/** Equal refusals, before any answer, after which the requests are wrong and not the rows. */
const equalRefusals = 20;

export function openPromptClient(options: PromptClientOptions): PromptClient {
  const { servers } = options;
  const [{ retry }] = servers;
  const endpoints = servers.map((server) => openEndpoint(server, { hasOthers: servers.length > 1, isEager: true }));
  const place = placeOf(servers[0], `asking ${serversText(servers)}`);
  const pool = createPool({ servers: endpoints, retry, doing: place.doing, hint: place.hint });
  const state: ClientState = {
    ...options,
    endpoints,
    pool,
    place,
    counter: countTraffic(),
    answers: 0,
    lost: 0,
    ended: undefined,
    refusals: new Map(),
  };
  return {
    traffic: trafficOf(state),
    get lost() {
      return state.lost;
    },
    ask: (request) => ask(state, request),
  };
}

/** What became of a request so far. */
interface Tries {
  faults: number;
  /** Answers of all requests at its first fault. */
  answersBefore: number;
  last: Endpoint | undefined;
}

async function ask(state: ClientState, request: PromptRequest): Promise<Asked> {
  const { place } = state;
  const rules = { judge: (error: unknown) => judge(place, error), code: "NETWORK", hint: place.hint } as const;
  const tries: Tries = { faults: 0, answersBefore: 0, last: undefined };
  return await tryAgain(place.doing, place.retry, rules, async () => {
    requireGoing(state);
    const turn = await state.pool.begin(tries.last);
    const { server: endpoint } = turn;
    const isRetry = tries.last !== undefined;
    tries.last = endpoint;
    let end: RequestEnd = { kind: "other" };
    try {
      place.signal.throwIfAborted();
      requireGoing(state);
      const outcome = await send(state, request, { endpoint, isRetry });
      endpoint.breaker.answered();
      end = outcome.kind === "answered" ? { kind: "answered", rows: 1 } : end;
      return outcome;
    } catch (error) {
      const failed = await failureOf(state, error, { tries, turn });
      end = failed.end;
      if (failed.outcome !== undefined) {
        return failed.outcome;
      }
      throw error;
    } finally {
      turn.end(end);
    }
  });
}

/** Throws the error that ends the attempt, if there is one. */
function requireGoing({ ended }: ClientState): void {
  if (ended !== undefined) {
    throw ended.error;
  }
}

/** The server asks for fewer requests in a time. */
class RateLimited extends BrokenTransfer {}

interface Sending {
  readonly endpoint: Endpoint;
  readonly isRetry: boolean;
}

async function send(state: ClientState, request: PromptRequest, { endpoint, isRetry }: Sending): Promise<Asked> {
  const { server } = endpoint;
  const { nowMs } = server.retry;
  state.counter.sent(isRetry);
  endpoint.counter.sent(isRetry);
  const startedMs = nowMs();
  const received = await postPrompt(state, server, request.asked).catch((error: unknown) => {
    countLost(state, request, error);
    throw error;
  });
  if (received.status !== 200) {
    const { status, headers, body } = received;
    const refusal = { status, headers, said: Buffer.from(body).toString("utf8") };
    const found = promptRefusal(refusal, request.form);
    return found.kind === "final" ? refuse(endpoint, refusal) : refusedOutcome(state, endpoint, found);
  }
  const ms = nowMs() - startedMs;
  try {
    const answer = readAnswerBody(received.body, state.kind);
    state.counter.answered(ms);
    endpoint.counter.answered(ms);
    state.answers += 1;
    return { kind: "answered", answer, ms };
  } catch (error) {
    countLost(state, request, error);
    if (error instanceof MalformedAnswer) {
      throw new JobError("MODEL_INVALID", `${endpoint.place.doing}: reading the answer: ${error.message}`, {
        hint: "check that model.server.url is a server of /chat/completions, or of /embeddings for model.prompt.input",
      });
    }
    throw error;
  }
}

function refuse(endpoint: Endpoint, refusal: Parameters<typeof refusalOf>[1]): never {
  throw refusalOf(endpoint.place.doing, refusal);
}

async function postPrompt(
  { kind }: Pick<ClientState, "kind">,
  server: ModelServer,
  { body }: AskedPrompt,
): ReturnType<typeof post> {
  const path = kind === "embedding" ? "/embeddings" : "/chat/completions";
  return await post(server, `${server.url}${path}`, encodedRequest([body], { "content-type": "application/json" }));
}

/** Errors of a connection that was never made. */
const unsent: ReadonlySet<string> = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"]);

/** Counts a request whose answer was lost: it may have been paid for. */
function countLost(state: ClientState, { reservation }: Pick<PromptRequest, "reservation">, error: unknown): void {
  if (!unsent.has(errnoOf(error) ?? "")) {
    state.lost += 1;
    reservation.lost();
  }
}

function refusedOutcome(
  state: ClientState,
  endpoint: Endpoint,
  found: Exclude<PromptRefusal, { kind: "final" }>,
): Asked {
  const { doing } = endpoint.place;
  switch (found.kind) {
    case "row":
      countRefusal(state, doing, found);
      return { kind: "refused", reason: found.reason, message: found.message };
    case "form":
      return found;
    case "quota":
      throw new JobError("QUOTA", `${doing}: ${found.message}`, {
        hint: "answers so far and committed rows are kept: top up the account and run the same command to go on",
      });
    case "fault":
      throw new ServerFault(found.message);
    case "overloaded":
      pauseAsAsked(state, endpoint, found);
      throw found.isRate ? new RateLimited(found.message) : new BrokenTransfer(found.message);
    default:
      return assertNever(found);
  }
}

/** @throws JobError MODEL_INVALID if the server has refused each of the first rows for the same reason */
function countRefusal(
  state: ClientState,
  doing: string,
  { reason, message }: Extract<PromptRefusal, { kind: "row" }>,
): void {
  if (state.answers > 0 || reason !== undefined) {
    return;
  }
  const count = (state.refusals.get(message) ?? 0) + 1;
  state.refusals.set(message, count);
  if (count >= equalRefusals) {
    throw new JobError("MODEL_INVALID", `${doing}: each of the first ${count} requests was refused: ${message}`, {
      hint: "check model.sampling, model.response and model.server.name: only what they name is sent",
    });
  }
}

interface FailedTry {
  readonly tries: Tries;
  readonly turn: { readonly server: Endpoint; readonly sent: Parameters<Endpoint["breaker"]["failed"]>[1] };
}

/** Counts a failure. Returns the outcome if the row is why the server fails. */
async function failureOf(
  state: ClientState,
  error: unknown,
  { tries, turn: { server: endpoint, sent } }: FailedTry,
): Promise<{ readonly end: RequestEnd; readonly outcome?: Asked }> {
  const { breaker, counter } = endpoint;
  const verdict = judge(endpoint.place, error);
  if (verdict.kind === "end") {
    state.ended ??= { error };
    breaker.ended(sent);
    return { end: { kind: "other" } };
  }
  counter.failed();
  if (!(error instanceof ServerFault)) {
    breaker.failed(verdict.found, sent);
    return { end: { kind: error instanceof RateLimited ? "other" : "overloaded" } };
  }
  tries.answersBefore = tries.faults === 0 ? state.answers : tries.answersBefore;
  tries.faults += 1;
  const works =
    tries.faults >= faultsOfRow
      ? state.answers > tries.answersBefore || (await answersControl(state, endpoint))
      : undefined;
  if (works === true) {
    breaker.answered();
    return { end: { kind: "other" }, outcome: { kind: "refused", reason: undefined, message: error.message } };
  }
  if (works === false || sent !== undefined) {
    breaker.failed(error.message, sent);
  }
  return { end: { kind: "other" } };
}

/** Whether a server answers a small request. */
async function answersControl(state: ClientState, { server, counter }: Endpoint): Promise<boolean> {
  state.counter.sent(false);
  counter.sent(false);
  const received = await postPrompt(state, server, state.control()).catch(() => undefined);
  server.signal.throwIfAborted();
  if (received?.status !== 200) {
    return false;
  }
  try {
    state.onControl(readAnswerBody(received.body, state.kind));
    return true;
  } catch {
    return false;
  }
}
