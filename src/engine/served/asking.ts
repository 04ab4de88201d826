import type { AnswerFault } from "../../columnar/types.js";
import type { ResponseHeaders } from "../../net/request.js";
import { BrokenTransfer, verdictOf } from "../../net/http.js";
import { errnoOf, type JobError } from "../../util/errors.js";
import { tryAgain, type Verdict } from "../../util/retry.js";
import type { ServerTraffic } from "../port.js";
import { hasRoom } from "./pace.js";
import { ServerFault } from "./protocol.js";
import {
  type ModelServer,
  type ModelServers,
  placeOf,
  type RefusalKind,
  serverAway,
  serversText,
  serverText,
} from "./server.js";
import { openTurns, type RequestEnd, type Turn } from "./turns.js";

/** A request to servers, until one of them has answered or refused it. */
export interface Question<T> {
  /** The rows that it has. */
  readonly rows: number;
  /** The tokens that it takes, as servers count them before they answer. */
  readonly tokens: number;
  /** Failures of servers on it, before its rows may be the reason. */
  readonly mostFaults: number;
  /** Waits until it may be sent: before its turn, since it must not hold up those that it waits for. */
  ready(this: void): Promise<void>;
  /**
   * Sends it, and reads the answer.
   * @throws BrokenTransfer, ServerFault, or the error of a connection, if it may be sent again; JobError otherwise
   */
  send(this: void, turn: Turn): Promise<T>;
  /**
   * Whether a server that has failed on it answers another request: then its rows are the reason. undefined: there is none.
   * @param answered other requests were answered since it first failed
   */
  works(this: void, turn: Turn, answered: boolean): Promise<boolean | undefined>;
}

/** The rows of a request are refused. */
export interface RefusedRows {
  readonly kind: "refused";
  /** undefined: the server does not take them, or fails on them. */
  readonly reason: AnswerFault | undefined;
  readonly message: string;
}

/** An outcome, and how long it took to send the request and to read the answer. */
type Timed<T> = (T | RefusedRows) & { readonly ms: number };

/** Asks the servers that have a model. */
export interface Asking {
  readonly traffic: ServerTraffic;
  /** Answers so far. */
  readonly answers: number;
  /**
   * Asks until a server has answered or refused: a server that does not answer, fails, or takes no requests now is asked
   * again, or another one.
   * @returns the outcome of `send`, and how long that took; an outcome of the kind "answered" is one with predictions
   * @throws JobError NETWORK (75) after all retries; what `send` throws
   */
  ask<T extends { readonly kind: string }>(question: Question<T>): Promise<Timed<T>>;
  /** Ends all requests with the first error that ends the attempt: each of them could cost money. */
  stop(this: void, error: unknown): void;
}

/** A server works, and was sent too many requests in a time. */
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

/**
 * Has a request sent again, after the pause that a server asks for which takes no more now.
 * @throws BrokenTransfer; JobError NETWORK if the pause is too long
 */
export function refuseOverload(
  turn: Turn,
  { message, retryAfterMs, isRate }: Extract<RefusalKind, { readonly kind: "overloaded" }>,
  headers: ResponseHeaders,
): never {
  if (isRate && hasRoom(headers)) {
    throw new RateLimited(message, Math.min(retryAfterMs, turn.server.retry.maxSeconds * 1000));
  }
  turn.pause(message, retryAfterMs);
  throw isRate ? new RateLimited(message, 0) : new BrokenTransfer(message);
}

/** Errors of a connection that was never made. */
const unsent: ReadonlySet<string> = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"]);

/** Whether a request that failed was never sent. */
export function wasUnsent(error: unknown): boolean {
  return unsent.has(errnoOf(error) ?? "");
}

/**
 * @param doing what messages begin with, before the names of servers: "scoring with"
 * @param isEager as for `openTurns`
 */
export function openAsking(servers: ModelServers, doing: string, isEager: boolean): Asking {
  const all = `${doing} ${serversText(servers)}`;
  const turns = openTurns(servers, all, isEager);

  const judge = ({ server }: Turn, error: unknown): Verdict =>
    error instanceof ServerFault
      ? { kind: "again", found: error.message }
      : verdictOf(placeOf(server, `${doing} ${serverText(server)}`), error);

  const ask = async <T extends { readonly kind: string }>(question: Question<T>): Promise<Timed<T>> => {
    let last: ModelServer | undefined;
    /** The last failure of `send`. What is thrown elsewhere ends the request. */
    let failure: { readonly error: unknown; readonly verdict: Verdict } | undefined;
    /** Failures of servers on this request; answers of others before the first one, and before the last try. */
    let [faults, answersBefore, answersAtFailure, waitMs] = [0, 0, turns.answers, 0];
    const [{ retry }] = servers;

    const tryOnce = async (): Promise<Timed<T>> => {
      await (waitMs > 0 ? retry.sleep(waitMs) : undefined);
      await question.ready();
      const turn = await turns.begin(question.tokens, last);
      last = turn.server;
      const startedMs = retry.nowMs();
      let end: RequestEnd = { kind: "works" };

      try {
        const outcome = await question.send(turn);
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
        // Requests may wait longer for their turn than for a server that is away: it is there if others were answered.
        const isNew = error instanceof RateLimited && turns.answers > answersAtFailure;
        failure = { error, verdict: { ...verdict, isNew } };
        answersAtFailure = turns.answers;
        waitMs = error instanceof RateLimited ? error.waitMs : 0;
        if (!(error instanceof ServerFault)) {
          end = { kind: endOf(error), found };
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
      judge: (error: unknown): Verdict =>
        failure !== undefined && error === failure.error ? failure.verdict : { kind: "end", error },
      code: "NETWORK",
      hint: serverAway,
    } as const;
    return await tryAgain(all, retry, rules, tryOnce);
  };

  return {
    traffic: turns.traffic,
    get answers() {
      return turns.answers;
    },
    ask,
    stop: turns.stop,
  };
}

/** What a request without answer says of its server. */
function endOf(error: unknown): "unavailable" | "overloaded" | "failed" {
  if (error instanceof UnknownModel) {
    return "failed"; // the server is there
  }
  return error instanceof RateLimited ? (error.waitMs > 0 ? "failed" : "overloaded") : "unavailable";
}
