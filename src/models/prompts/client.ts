import type { AnswerFault } from "../../columns/types.js";
import { JobError } from "../../base/errors.js";
import { createCondition } from "../../base/promises.js";
import { costOf, type Price, type SpendingLimits, type TokenCount } from "../engine.js";
import { type EncodedRequest, encodedRequest, MalformedAnswer } from "../served/protocol.js";
import { type ModelServers, type Refusal, type RefusalKind, urlAt } from "../served/server.js";
import { openAsking, type Received, type RefusedRows, type Turn, usualAnswerBytes } from "../served/turns.js";
import { type AskedPrompt, type ModelAnswer, type PromptTask, readAnswerBody, type RequestForm } from "./task.js";

/** What became of a request, after retries. */
export type Asked =
  | { readonly kind: "answered"; readonly answer: ModelAnswer }
  | RefusedRows
  /** The server may take the request in another form. `message`: what it says of this one */
  | { readonly kind: "form"; readonly form: RequestForm; readonly message: string };

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

/** A small request of no row, which costs next to nothing: its answer shows that a server works. */
export interface ControlRequest {
  readonly asked: AskedPrompt;
  readonly onLost: () => void;
  /** Counts its answer. @throws JobError DISK */
  readonly answered: (answer: ModelAnswer) => void;
}

/** Failures of servers on a row, before it may be the row that makes them fail. */
const faultsOfRow = 5;
/** Equal refusals, before any answer, after which the requests are wrong and not the rows. */
const equalRefusals = 20;

/** Sends prompts. */
export function openPromptClient(kind: PromptTask["kind"], servers: ModelServers, openControl: () => ControlRequest) {
  const path = kind === "embedding" ? "/embeddings" : "/chat/completions";
  const how = { isEager: true, mayResend: false };
  const asking = openAsking(servers, "asking", (server) => urlAt(server, path), how);
  /** How often the server refused a row before it answered any, by what it said. */
  const refusals = new Map<string, number>();

  /** @throws JobError MODEL_INVALID if each of the first requests was refused, for the same reason */
  const countRefusal = (doing: string, message: string, hint: string): void => {
    const count = asking.answers > 0 ? 0 : (refusals.get(message) ?? 0) + 1;
    refusals.set(message, count);
    if (count >= equalRefusals) {
      const all = `${doing}: none of the first ${count} requests has a result: ${message}`;
      throw new JobError("MODEL_INVALID", all, { hint });
    }
  };

  const read = ({ body }: Received, doing: string, onLost: () => void): Asked => {
    try {
      return { kind: "answered", answer: readAnswerBody(body, kind) };
    } catch (error) {
      onLost();
      if (error instanceof MalformedAnswer) {
        const hint =
          "check that model.server.url is a server of /chat/completions, or of /embeddings for model.prompt.input";
        countRefusal(`${doing}: reading the answer`, error.message, hint);
        return { kind: "refused", reason: "answer_invalid", message: `reading the answer: ${error.message}` };
      }
      throw error;
    }
  };

  const answersControl = async (turn: Turn): Promise<boolean> => {
    const { asked, onLost, answered } = openControl();
    const received = await asking.control(turn, { ...requestOf(asked), onLost });
    if (received === undefined) {
      return false;
    }
    let answer: ModelAnswer;
    try {
      answer = readAnswerBody(received.body, kind);
    } catch {
      onLost();
      return false;
    }
    answered(answer);
    return true;
  };

  return {
    traffic: asking.traffic,
    /** Ends all requests with the first error that ends the attempt: each of them would cost money. */
    stop: asking.stop,
    /**
     * Sends a request until it is answered or refused.
     * @throws JobError NETWORK (75) after all retries; QUOTA (67); PERMISSION, FILE_MISSING, MODEL_INVALID (64)
     */
    ask: ({ asked, form, ready, onLost, tokens }: PromptRequest): Promise<Asked & { readonly ms: number }> =>
      asking.ask<Asked>({
        ...requestOf(asked),
        rows: 1,
        tokens,
        mostFaults: faultsOfRow,
        ready,
        onLost,
        read: (received, { doing }) => read(received, doing, onLost),
        refused(found, refusal, { doing }) {
          const refused = refusalOfPrompt(found, refusal, form, doing);
          if (refused?.kind === "refused" && refused.reason === undefined) {
            const hint = "check model.sampling, model.response and model.server.name: only what they name is sent";
            countRefusal(doing, refused.message, hint);
          }
          return refused;
        },
        works: async (turn, answered) => answered || (await answersControl(turn)),
      }),
  };
}

function requestOf({ body }: AskedPrompt): { readonly encoded: EncodedRequest; readonly mostBytes: number } {
  return { encoded: encodedRequest([body], { "content-type": "application/json" }), mostBytes: usualAnswerBytes };
}

const quota =
  /insufficient_quota|billing_hard_limit|billing_not_active|insufficient (balance|credits|funds)|exceeded your current quota|credit balance is too low|out of credits/i;
const tooLong =
  /context_length_exceeded|exceed_context_size|maximum context|context (length|size|window)|prompt is too long|input (is )?too long|maximum (input|sequence) length|too many input tokens/i;
/** OpenAI's 429 to a request with more tokens than an account may send in a minute: it is never taken. */
const neverTaken = /request too large for .* tokens per min/i;
const policy = /content_filter|content_policy|content management policy|invalid_prompt|flagged/i;
const structured = /response_format|json_?\s?schema|structured output|grammar|guided/i;

/** What an answer without a result means for its row; undefined: nothing. @throws JobError QUOTA: no money is left */
function refusalOfPrompt(
  { kind, message }: RefusalKind,
  { status, said }: Refusal,
  form: RequestForm,
  doing: string,
): Asked | undefined {
  if (status === 402 || ((status === 429 || status === 403) && quota.test(said))) {
    throw new JobError("QUOTA", `${doing}: ${message}`, {
      hint: "answers so far and committed rows are kept: top up the account and run the same command to go on",
    });
  }
  const ofRow = (reason: AnswerFault | undefined): Asked => ({ kind: "refused", reason, message });
  if (kind === "too large" || (status === 429 && neverTaken.test(said))) {
    return ofRow("prompt_too_long");
  }
  if (kind !== "values") {
    return undefined;
  }
  if (form.tokensKey === "max_tokens" && /max_completion_tokens/.test(said)) {
    return { kind: "form", form: { ...form, tokensKey: "max_completion_tokens" }, message };
  }
  if (tooLong.test(said)) {
    return ofRow("prompt_too_long");
  }
  if (policy.test(said)) {
    return ofRow("answer_refused");
  }
  return form.isStructured && structured.test(said)
    ? { kind: "form", form: { ...form, isStructured: false }, message }
    : ofRow(undefined);
}

/** What a request may spend at most, until it is known what it did. */
export interface Reservation {
  spent(tokens: TokenCount): void;
  /** Counts the worst case: an answer was lost, which may have cost as much. The reservation stays. */
  lost(): void;
  /**
   * Waits until the request may be sent: again, after `lost`, its worst case must fit in addition to those that were lost.
   * @throws JobError BUDGET if it does not fit and no request is left that could free a part
   */
  ready(this: void): Promise<void>;
  /** Ends the reservation. What was not counted is free again. */
  end(): void;
}

/** Holds a run to its budget: before a request is sent, its worst case must fit into what requests in flight leave. */
export interface Budget {
  /**
   * Takes what attempts have spent from the limits.
   * @param earlier spent by all workers, and by this one
   * @param workers the processes that share the budget
   */
  begin(earlier: { readonly all: TokenCount; readonly byWorker: TokenCount }, workers: number): void;
  /**
   * Waits until a request fits.
   * @throws JobError BUDGET if it does not fit although no other request is in flight
   */
  reserve(worst: TokenCount): Promise<Reservation>;
}

interface Amount {
  readonly tokens: number;
  readonly cost: number;
}

/** Sums of costs are off by less than this. */
const roundingError = 1e-9;

/** @param doing the act that messages begin with; @param limits what a run may spend in all */
export function createBudget(doing: string, limits: SpendingLimits, price: Price | undefined): Budget {
  const changed = createCondition();
  /** What this attempt may spend, what all workers had spent before it, and what it has spent. */
  let [allowed, earlier, workers] = [limits, { tokens: 0, cost: 0 }, 1];
  const used = { tokens: 0, cost: 0 };
  /** The worst cases of requests in flight, and how many these are; some of them wait to be sent again. */
  const held = { tokens: 0, cost: 0 };
  let [holders, waiting] = [0, 0];

  const amountOf = (count: TokenCount): Amount => ({
    tokens: count.prompt + count.completion,
    cost: price === undefined ? 0 : costOf(count, price),
  });

  const fits = ({ tokens, cost }: Amount): boolean =>
    used.tokens + held.tokens + tokens <= (allowed.tokens ?? Number.POSITIVE_INFINITY) &&
    used.cost + held.cost + cost <= (allowed.cost ?? Number.POSITIVE_INFINITY) + roundingError;

  const spentError = (): JobError => {
    const { tokens, cost } = limits;
    const limit = [
      ...(tokens === undefined ? [] : [`max_tokens is ${tokens}, used ${earlier.tokens + used.tokens}`]),
      ...(cost === undefined ? [] : [`max_cost is ${cost}, used ${Number((earlier.cost + used.cost).toPrecision(4))}`]),
    ].join("; ");
    const what = "paid, and the most that requests without an answer may have cost";
    const part = workers === 1 ? "" : `, of which each of the ${workers} workers may spend 1/${workers}`;
    return new JobError("BUDGET", `${doing}: the next request might exceed model.budget (${limit}: ${what})${part}`, {
      hint: "answers so far and committed rows are kept: raise the budget and run the same command to go on",
    });
  };

  return {
    begin({ all, byWorker }, count) {
      const own = amountOf(byWorker);
      [earlier, workers] = [amountOf(all), count];
      // A part of what is left, and no more than this worker's part of the whole: what the others have begun to spend is
      // not known yet, and this worker may have started several times.
      const shareOf = (limit: number | undefined, by: number, byThis: number): number | undefined =>
        limit === undefined ? undefined : Math.max(0, Math.min((limit - by) / count, limit / count - byThis));
      allowed = {
        tokens: shareOf(limits.tokens, earlier.tokens, own.tokens),
        cost: shareOf(limits.cost, earlier.cost, own.cost),
      };
    },
    async reserve(count) {
      const worst = amountOf(count);
      while (!fits(worst)) {
        if (holders === waiting) {
          throw spentError();
        }
        await changed.wait();
      }

      add(held, worst); // at once: others that wait here must find it held
      holders += 1;
      return {
        spent: (tokens) => add(used, amountOf(tokens)),
        lost: () => add(used, worst),
        async ready() {
          while (!fits({ tokens: 0, cost: 0 })) {
            if (waiting + 1 === holders) {
              throw spentError();
            }
            waiting += 1;
            await changed.wait();
          }
        },
        end() {
          add(held, worst, -1);
          holders -= 1;
          if (holders === 0) {
            [held.tokens, held.cost] = [0, 0]; // sums of floating-point numbers do not return to 0
          }
          waiting = 0; // all check again: until they have, none of them counts as one that can free nothing
          changed.notify();
        },
      };
    },
  };
}

function add(to: { tokens: number; cost: number }, { tokens, cost }: Amount, sign: 1 | -1 = 1): void {
  to.tokens += sign * tokens;
  to.cost += sign * cost;
}
