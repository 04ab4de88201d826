import type { AnswerFault } from "../../columnar/types.js";
import { BrokenTransfer } from "../../net/request.js";
import type { HttpEndpoint } from "../../net/http.js";
import { errnoOf, JobError } from "../../util/errors.js";
import type { Endpoint } from "../served/client-state.js";
import type { RequestEnd } from "../served/in-flight-limit.js";
import { encodedRequest, ServerFault } from "../served/message.js";
import { judge } from "../served/outcome.js";
import type { Pool } from "../served/pool.js";
import { type ModelServer, urlAt } from "../served/server.js";
import type { TrafficCounter } from "../served/traffic.js";
import { post, usualAnswerBytes } from "../served/transport.js";
import { type ModelAnswer, readAnswerBody } from "./answer.js";
import type { Gate } from "./gate.js";
import type { HeaderPace } from "./pace.js";
import type { AskedPrompt, PromptTask, RequestForm } from "./request.js";

/** What became of a request, after retries. */
export type Asked =
  | { readonly kind: "answered"; readonly answer: ModelAnswer; readonly ms: number }
  /** The server refuses the row. */
  | { readonly kind: "refused"; readonly reason: AnswerFault | undefined; readonly message: string }
  /** The server refuses the form of the request. It may take this one. */
  | { readonly kind: "form"; readonly form: RequestForm; readonly message: string };

export interface PromptClientOptions {
  readonly kind: PromptTask["kind"];
  /** At least one; all have the same model. */
  readonly servers: readonly [ModelServer, ...ModelServer[]];
  /** Makes a small request, which costs next to nothing: its answer shows that a server works. */
  readonly control: () => ControlRequest;
  readonly gate: Gate;
}

/** A small request of no row. */
export interface ControlRequest {
  readonly asked: AskedPrompt;
  /** Called when its answer was lost. */
  readonly onLost: () => void;
  /** Counts its answer. */
  readonly answered: (answer: ModelAnswer) => void;
}

/** A server whose headers say how many requests it takes in a time. */
export interface PromptEndpoint extends Endpoint {
  readonly pace: HeaderPace;
}

/** What the requests of a client share. */
export interface ClientState extends PromptClientOptions {
  readonly endpoints: readonly PromptEndpoint[];
  readonly pool: Pool<PromptEndpoint>;
  readonly place: HttpEndpoint;
  readonly counter: TrafficCounter;
  /** Answers so far. */
  answers: number;
  /** How often the server refused a row before it answered any, by what it said. */
  readonly refusals: Map<string, number>;
}

/** Failures of the server on a row, before it may be the row that makes it fail. */
const faultsOfRow = 5;
/** Equal refusals, before any answer, after which the requests are wrong and not the rows. */
const equalRefusals = 20;

/** What became of a request so far. */
export interface Tries {
  faults: number;
  /** Answers of all requests at its first fault. */
  answersBefore: number;
  /** Answers of all requests at its last failure, or when it was first sent. */
  answersAtFailure: number;
  last: PromptEndpoint | undefined;
  /** How long the server asks this request alone to wait. */
  waitMs: number;
}

/** The server asks for fewer requests in a time. */
export class RateLimited extends BrokenTransfer {
  /** How long this request must wait. */
  readonly waitMs: number;

  constructor(message: string, waitMs: number) {
    super(message);
    this.waitMs = waitMs;
  }
}

export interface FailedTry {
  readonly tries: Tries;
  readonly turn: { readonly server: Endpoint; readonly sent: Parameters<Endpoint["breaker"]["failed"]>[1] };
}

/** Counts a failure. Returns the outcome if the row is why the server fails. */
export async function failureOf(
  state: ClientState,
  error: unknown,
  { tries, turn: { server: endpoint, sent } }: FailedTry,
): Promise<{ readonly end: RequestEnd; readonly outcome?: Asked }> {
  const { breaker, counter } = endpoint;
  const verdict = judge(endpoint.place, error);
  if (verdict.kind === "end") {
    state.gate.close(verdict.error);
    breaker.ended(sent);
    return { end: { kind: "other" } };
  }
  counter.failed();
  tries.waitMs = error instanceof RateLimited ? error.waitMs : 0;
  if (error instanceof RateLimited) {
    if (sent !== undefined) {
      breaker.failed(verdict.found, sent);
    }
    // The server is there, and says so. Where it names no pause of this request, fewer are sent at once.
    return { end: error.waitMs > 0 ? { kind: "other" } : { kind: "overloaded" } };
  }
  if (!(error instanceof ServerFault)) {
    breaker.failed(verdict.found, sent);
    return { end: { kind: "overloaded" } };
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
  const { asked, onLost, answered } = state.control();
  state.counter.sent(false);
  counter.sent(false);
  try {
    const received = await postPrompt(state, server, asked);
    if (received.status !== 200) {
      return false;
    }
    answered(readAnswerBody(received.body, state.kind));
    return true;
  } catch (error) {
    lostUnlessUnsent(onLost, error);
    server.signal.throwIfAborted();
    return false;
  }
}

/** Errors of a connection that was never made. */
const unsent: ReadonlySet<string> = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"]);

/** Counts a request whose answer was lost, unless it was never sent. */
export function lostUnlessUnsent(onLost: () => void, error: unknown): void {
  if (!unsent.has(errnoOf(error) ?? "")) {
    onLost();
  }
}

/** Sends a request. @throws BrokenTransfer, or the error of the connection */
export async function postPrompt(
  { kind }: Pick<ClientState, "kind">,
  server: ModelServer,
  { body }: AskedPrompt,
): ReturnType<typeof post> {
  const path = kind === "embedding" ? "/embeddings" : "/chat/completions";
  return await post(server, urlAt(server, path), encodedRequest([body], { "content-type": "application/json" }), {
    mayResend: false,
    mostBytes: usualAnswerBytes,
  });
}

/** Counts a request without a result. @throws JobError MODEL_INVALID if each of the first ones was, for the same reason */
export function countRefusal(
  state: ClientState,
  doing: string,
  { message, hint }: { readonly message: string; readonly hint: string },
): void {
  if (state.answers > 0) {
    return;
  }
  const count = (state.refusals.get(message) ?? 0) + 1;
  state.refusals.set(message, count);
  if (count >= equalRefusals) {
    throw new JobError("MODEL_INVALID", `${doing}: none of the first ${count} requests has a result: ${message}`, {
      hint,
    });
  }
}
