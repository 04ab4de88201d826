import { BrokenTransfer } from "../../net/request.js";
import { assertNever, JobError } from "../../util/errors.js";
import { tryAgain, type Verdict } from "../../util/retry.js";
import type { ServerTraffic } from "../port.js";
import { type Endpoint, openEndpoint, trafficOf } from "../served/client-state.js";
import type { RequestEnd } from "../served/in-flight-limit.js";
import { MalformedAnswer, ServerFault } from "../served/message.js";
import { judge, pauseAsAsked } from "../served/outcome.js";
import { createPool } from "../served/pool.js";
import { placeOf, refusalOf, serversText } from "../served/server.js";
import { countTraffic } from "../served/traffic.js";
import { readAnswerBody } from "./answer.js";
import type { Reservation } from "./budget.js";
import {
  type Asked,
  type ClientState,
  type PromptEndpoint,
  countRefusal,
  lostUnlessUnsent,
  failureOf,
  postPrompt,
  type PromptClientOptions,
  RateLimited,
  type Tries,
} from "./client-failures.js";
import { createHeaderPace, hasRoom, type PaceMark } from "./pace.js";
import { type PromptRefusal, promptRefusal } from "./refusals.js";
import type { AskedPrompt, RequestForm } from "./request.js";

export interface PromptRequest {
  readonly asked: AskedPrompt;
  readonly form: RequestForm;
  /** Waits until the budget covers the request: once more where an answer was lost. */
  readonly ready: Reservation["ready"];
  /** Called when its answer was lost: it may have been paid for. */
  readonly onLost: () => void;
  /** The most tokens that it takes, as a server counts them before it answers. */
  readonly tokens: number;
}

/** Sends prompts. */
export interface PromptClient {
  readonly traffic: ServerTraffic;
  /**
   * Sends a request until it is answered or refused.
   * @throws JobError NETWORK (75) after all retries; QUOTA (67); PERMISSION, FILE_MISSING, MODEL_INVALID (64)
   */
  ask(request: PromptRequest): Promise<Asked>;
}

export function openPromptClient(options: PromptClientOptions): PromptClient {
  const { servers } = options;
  const [{ retry }] = servers;
  const endpoints = servers.map((server) => ({
    ...openEndpoint(server, { hasOthers: servers.length > 1, isEager: true }),
    pace: createHeaderPace(retry.nowMs),
  }));
  const place = placeOf(servers[0], `asking ${serversText(servers)}`);
  const pool = createPool({ servers: endpoints, retry, doing: place.doing, hint: place.hint });
  const state: ClientState = {
    ...options,
    endpoints,
    pool,
    place,
    counter: countTraffic(),
    answers: 0,
    refusals: new Map(),
  };
  return {
    traffic: trafficOf(state),
    ask: (request) => ask(state, request),
  };
}

async function ask(state: ClientState, request: PromptRequest): Promise<Asked> {
  const { place } = state;
  const tries: Tries = { faults: 0, answersBefore: 0, answersAtFailure: state.answers, last: undefined, waitMs: 0 };
  const rules = {
    judge: (error: unknown) => judgeTry(state, tries, error),
    code: "NETWORK",
    hint: place.hint,
  } as const;
  return await tryAgain(place.doing, place.retry, rules, async () => {
    state.gate.requireOpen();
    await (tries.waitMs > 0 ? place.retry.sleep(tries.waitMs) : undefined);
    await request.ready(); // before the turn: a request that waits must not hold up those it waits for
    const turn = await state.pool.begin(tries.last, request.tokens);
    const { server: endpoint } = turn;
    const mark = turn.mark as PaceMark; // what the endpoint's own pace made
    const isRetry = tries.last !== undefined;
    tries.last = endpoint;
    let end: RequestEnd = { kind: "other" };
    try {
      requireWanted(state);
      const outcome = await send(state, request, { endpoint, isRetry, mark });
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

/**
 * Whether a request is sent again. A refusal for its rate begins the time of retries anew where other requests were
 * answered since the last failure: the server is there, and requests may wait longer for their turn than for a server
 * that is away.
 */
function judgeTry(state: ClientState, tries: Tries, error: unknown): Verdict {
  const { answersAtFailure } = tries;
  tries.answersAtFailure = state.answers;
  const verdict = judge(state.place, error);
  return verdict.kind === "again" && error instanceof RateLimited
    ? { ...verdict, isNew: state.answers > answersAtFailure }
    : verdict;
}

/** @throws the reason why the attempt ends */
function requireWanted({ place, gate }: Pick<ClientState, "place" | "gate">): void {
  place.signal.throwIfAborted();
  gate.requireOpen();
}

interface SendingTo {
  readonly endpoint: PromptEndpoint;
  readonly isRetry: boolean;
  readonly mark: PaceMark;
}

async function send(
  state: ClientState,
  request: PromptRequest,
  { endpoint, isRetry, mark }: SendingTo,
): Promise<Asked> {
  const { server } = endpoint;
  const { nowMs } = server.retry;
  state.counter.sent(isRetry);
  endpoint.counter.sent(isRetry);
  const startedMs = nowMs();
  const received = await postPrompt(state, server, request.asked).catch((error: unknown) => {
    lostUnlessUnsent(request.onLost, error);
    throw error;
  });
  const { status, headers, body } = received;
  const refusal = status === 200 ? undefined : { status, headers, said: received.said() };
  const found = refusal && promptRefusal(refusal, request.form);
  endpoint.pace.heard(mark, headers);
  if (refusal !== undefined && found !== undefined) {
    return found.kind === "final"
      ? refuse(endpoint, refusal)
      : refusedOutcome(state, endpoint, { ...found, isAlone: hasRoom(headers) });
  }
  const ms = nowMs() - startedMs;
  try {
    const answer = readAnswerBody(body, state.kind);
    state.counter.answered(ms);
    endpoint.counter.answered(ms);
    state.answers += 1;
    return { kind: "answered", answer, ms };
  } catch (error) {
    lostUnlessUnsent(request.onLost, error);
    if (error instanceof MalformedAnswer) {
      const { message } = error;
      countRefusal(state, `${endpoint.place.doing}: reading the answer`, {
        message,
        hint: "check that model.server.url is a server of /chat/completions, or of /embeddings for model.prompt.input",
      });
      return { kind: "refused", reason: "answer_invalid", message: `reading the answer: ${message}` };
    }
    throw error;
  }
}

function refuse(endpoint: Endpoint, refusal: Parameters<typeof refusalOf>[2]): never {
  throw refusalOf(endpoint.server, endpoint.place.doing, refusal);
}

function refusedOutcome(
  state: ClientState,
  endpoint: Endpoint,
  found: Exclude<PromptRefusal, { kind: "final" }> & { readonly isAlone: boolean },
): Asked {
  const { doing } = endpoint.place;
  switch (found.kind) {
    case "row":
      if (found.reason === undefined) {
        countRefusal(state, doing, {
          message: found.message,
          hint: "check model.sampling, model.response and model.server.name: only what they name is sent",
        });
      }
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
      if (found.isRate && found.isAlone) {
        throw new RateLimited(found.message, Math.min(found.retryAfterMs, endpoint.server.retry.maxSeconds * 1000));
      }
      pauseAsAsked(state, endpoint, found);
      throw found.isRate ? new RateLimited(found.message, 0) : new BrokenTransfer(found.message);
    default:
      return assertNever(found);
  }
}
