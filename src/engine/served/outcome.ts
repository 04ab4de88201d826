import { BrokenTransfer } from "../../net/request.js";
import { type HttpEndpoint, verdictOf } from "../../net/http.js";
import { assertNever, JobError } from "../../util/errors.js";
import type { Verdict } from "../../util/retry.js";
import type { ClientState, Endpoint } from "./client-state.js";
import { loadingSeconds } from "./ask.js";
import { UnfitValue } from "./json.js";
import { type Answer, type EncodedRequest, type Expected, MalformedAnswer, ServerFault } from "./message.js";
import type { Protocol } from "./protocol.js";
import { type Refusal, refusalKind } from "./refusals.js";
import { type ModelServer, refusalOf } from "./server.js";
import { isReady, type Received } from "./transport.js";

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

/** A server that had the model does not know it. It may have restarted, and be loading it. */
export class UnknownModel extends BrokenTransfer {
  /** The error if it does not come back. */
  readonly lasting: JobError;

  constructor(message: string, lasting: JobError) {
    super(message);
    this.lasting = lasting;
  }
}

export interface ReceivedAnswer {
  readonly endpoint: Endpoint;
  readonly received: Received;
  readonly startedMs: number;
}

/**
 * Reads the answer to a request.
 * @throws ServerFault, BrokenTransfer for a request to be sent again; JobError for one that no retry changes
 */
export async function outcomeOf(
  state: ClientState,
  request: InferenceRequest,
  { endpoint, received, startedMs }: ReceivedAnswer,
): Promise<Outcome> {
  const { doing } = endpoint.place;
  if (received.status !== 200) {
    const { status, headers } = received;
    return await refusedOutcome(state, endpoint, { status, headers, said: received.said() });
  }
  const ms = endpoint.server.retry.nowMs() - startedMs;
  state.counter.answered(ms);
  endpoint.counter.answered(ms);
  try {
    endpoint.unknownSinceMs = undefined;
    const answer = state.protocol.decode(received, { outputs: request.wanted, rows: request.rows });
    checkVersion(state, doing, answer);
    keepControl(state, request);
    return { kind: "answered", answer, ms };
  } catch (error) {
    if (error instanceof UnfitValue) {
      return { kind: "refused", message: `the answer has ${error.message}` };
    }
    if (error instanceof MalformedAnswer) {
      throw new JobError("MODEL_INVALID", `${doing}: reading the answer: ${error.message}`, {
        hint: "the server's answers do not match the protocol, or what the metadata or model.server.signature says of the model",
      });
    }
    throw error;
  }
}

function checkVersion(state: ClientState, doing: string, { version: answered }: Answer): void {
  const expected = state.version.version ?? state.answered;
  if (answered !== undefined && expected !== undefined && answered !== expected) {
    throw new JobError(
      "MODEL_CHANGED",
      `${doing}: version ${answered} answered, and this run is scored with version ${expected}`,
      { hint: "serve that version again and run the same command; or abandon this run with --new-run" },
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

async function refusedOutcome(state: ClientState, endpoint: Endpoint, refusal: Refusal): Promise<Outcome> {
  const { version } = state;
  const { doing } = endpoint.place;
  const found = refusalKind(refusal);
  switch (found.kind) {
    case "values":
      return { kind: "refused", message: found.message };
    case "too large":
      return { kind: "too large", message: found.message };
    case "fault":
      throw new ServerFault(found.message);
    case "overloaded":
      pauseAsAsked(state, endpoint, found);
      throw new BrokenTransfer(found.message);
    case "gone": {
      const error = goneError(endpoint, version, { refusal, message: found.message });
      if (mayBeLoading(state, endpoint)) {
        throw new UnknownModel(found.message, error);
      }
      if (!(await isServerReady(state.protocol, endpoint.server))) {
        throw new BrokenTransfer(found.message);
      }
      throw error;
    }
    case "other":
      throw refusalOf(endpoint.server, doing, refusal);
    default:
      return assertNever(found);
  }
}

/** The error for a server that does not know the model. */
function goneError(
  { server, place: { doing } }: Endpoint,
  { version }: ClientState["version"],
  { refusal, message }: { readonly refusal: Refusal; readonly message: string },
): JobError {
  return version === undefined
    ? refusalOf(server, doing, refusal)
    : new JobError("MODEL_CHANGED", `${doing}: ${message}; this run is scored with version ${version}`, {
        hint: "serve that version again and run the same command; or abandon this run with --new-run",
      });
}

/** Keeps the pause that a server asks for. @throws JobError NETWORK if it is too long, and there is no other server */
export function pauseAsAsked(
  { endpoints }: Pick<ClientState, "endpoints">,
  endpoint: Endpoint,
  { message, retryAfterMs }: { readonly message: string; readonly retryAfterMs: number },
): void {
  const { nowMs, maxSeconds } = endpoint.server.retry;
  const { doing, hint } = endpoint.place;
  if (retryAfterMs > maxSeconds * 1000 && endpoints.length === 1) {
    const seconds = Math.round(retryAfterMs / 1000);
    throw new JobError("NETWORK", `${doing}: ${message}, and asks for a pause of ${seconds} s`, { hint });
  }
  const untilMs = nowMs() + Math.min(retryAfterMs, maxSeconds * 1000);
  endpoint.pausedUntilMs = Math.max(endpoint.pausedUntilMs, untilMs);
}

/**
 * Whether a server that does not know the model may have started just now, and answers before it has loaded its models.
 * The model must have been there before: in an answer, or when the run was planned.
 */
function mayBeLoading({ control, isPlanned }: ClientState, endpoint: Endpoint): boolean {
  const { retry } = endpoint.server;
  endpoint.unknownSinceMs ??= retry.nowMs();
  const isKnown = control !== undefined || isPlanned;
  return isKnown && retry.nowMs() - endpoint.unknownSinceMs < loadingSeconds(retry) * 1000;
}

/** Whether the server says that it is ready. One that cannot say counts as ready. */
async function isServerReady(protocol: Protocol, server: ModelServer): Promise<boolean> {
  const url = protocol.readyUrl(server);
  return url === undefined || (await isReady(server, url));
}

/** Whether a request that failed is sent again. */
export function judge(place: HttpEndpoint, error: unknown): Verdict {
  return error instanceof ServerFault ? { kind: "again", found: error.message } : verdictOf(place, error);
}
