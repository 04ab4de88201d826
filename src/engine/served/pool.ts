import { JobError } from "../../util/errors.js";
import type { RetryTools } from "../../util/retry.js";
import type { BrokenCircuit, CircuitBreaker } from "./circuit-breaker.js";
import type { InFlightLimit, RequestEnd } from "./in-flight-limit.js";

/** Spreads requests over time. */
export interface Pace {
  /** The time from which on a request of so much weight may be sent. */
  readyMs(weight: number): number;
  /** Counts a request that is sent. */
  sent(weight: number): unknown;
}

/** A server that requests can be sent to. */
export interface PooledServer {
  readonly limit: InFlightLimit;
  readonly breaker: CircuitBreaker;
  /** The server asked for a pause until then. */
  pausedUntilMs: number;
  /** undefined: requests are sent as soon as a server is below its limit. */
  readonly pace?: Pace | undefined;
}

/** The permission for one request to a server. */
export interface PooledTurn<S> {
  readonly server: S;
  readonly sent: BrokenCircuit | undefined;
  /** What the server's pace says of the request; undefined: it has none. */
  readonly mark: unknown;
  end(end: RequestEnd): void;
}

/** Chooses the server of each request. */
export interface Pool<S> {
  /** The most requests that have been in flight at once, to all servers. */
  readonly highest: number;
  /**
   * Waits for a turn at the server with the smallest share of its limit in flight.
   * @param avoid a server that is used only if there is no other
   * @param weight of the request, for servers with a pace
   * @throws JobError NETWORK if all servers have been unavailable for `retry.maxSeconds`
   */
  begin(avoid?: S, weight?: number): Promise<PooledTurn<S>>;
}

export interface PoolOptions<S> {
  readonly servers: readonly S[];
  readonly retry: RetryTools;
  /** The act that messages begin with, and what to do if all servers are unavailable. */
  readonly doing: string;
  readonly hint: string;
}

interface Waiting<S> {
  readonly avoid: S | undefined;
  readonly weight: number;
  readonly resolve: (turn: PooledTurn<S>) => void;
  readonly reject: (error: unknown) => void;
}

export function createPool<S extends PooledServer>(options: PoolOptions<S>): Pool<S> {
  const { servers, retry } = options;
  const waiting: Waiting<S>[] = [];
  let [inFlight, highest] = [0, 0];
  const turnAt = (server: S, weight: number): PooledTurn<S> => {
    const mark = server.pace?.sent(weight);
    const sent = server.breaker.begin();
    const turn = server.limit.begin(() => waiting.length > 0);
    inFlight += 1;
    highest = Math.max(highest, inFlight);
    return {
      server,
      sent,
      mark,
      end(end) {
        turn.end(end);
        inFlight -= 1;
        admit();
      },
    };
  };
  const admit = (): void => {
    for (let next = waiting[0]; next !== undefined; next = waiting[0]) {
      const nowMs = retry.nowMs();
      const server = choose(servers, nowMs, next);
      if (server === undefined) {
        const away = awayError(options);
        if (away !== undefined) {
          return rejectAll(waiting, away);
        }
        return alarm(next.weight, nowMs);
      }
      waiting.shift();
      next.resolve(turnAt(server, next.weight));
    }
  };
  const alarm = createAlarm(options, admit, (reason) => rejectAll(waiting, reason));
  return {
    get highest() {
      return highest;
    },
    begin(avoid, weight = 1) {
      return new Promise((resolve, reject) => {
        waiting.push({ avoid, weight, resolve, reject });
        admit();
      });
    },
  };
}

function rejectAll<S>(waiting: Waiting<S>[], error: unknown): void {
  for (const one of waiting.splice(0)) {
    one.reject(error);
  }
}

/**
 * Makes a function that has `admit` called when the next server may be asked: no request in flight would do so.
 * @param onStop called with the reason when the job is stopped meanwhile
 */
function createAlarm<S extends PooledServer>(
  { servers, retry }: PoolOptions<S>,
  admit: () => void,
  onStop: (reason: unknown) => void,
): (weight: number, nowMs: number) => void {
  let setMs = Number.POSITIVE_INFINITY;
  const ring = async (ms: number): Promise<void> => {
    try {
      await retry.sleep(ms);
    } catch (error) {
      onStop(error);
      return;
    }
    setMs = Number.POSITIVE_INFINITY;
    admit();
  };
  // `nowMs`: when no server was found. One that has become ready since would set no alarm by a later time.
  return (weight, nowMs) => {
    const dueMs = Math.min(...servers.map((server) => readyMs(server, weight)).filter((ms) => ms > nowMs));
    if (dueMs < setMs) {
      setMs = dueMs;
      void ring(dueMs - nowMs);
    }
  };
}

function readyMs({ breaker, pausedUntilMs, pace }: PooledServer, weight: number): number {
  return Math.max(breaker.readyMs, pausedUntilMs, pace?.readyMs(weight) ?? 0);
}

/** A server that is tried again comes first: otherwise it would never be used while another is below its limit. */
function choose<S extends PooledServer>(
  servers: readonly S[],
  nowMs: number,
  { avoid, weight }: Pick<Waiting<S>, "avoid" | "weight">,
): S | undefined {
  const free = servers.filter((server) => server.limit.isFree && readyMs(server, weight) <= nowMs);
  const share = (server: S): number =>
    server === avoid ? 2 : server.breaker.openSinceMs === undefined ? server.limit.share : -1;
  return free.toSorted((one, other) => share(one) - share(other))[0];
}

/** The error if all servers have been unavailable for too long; undefined: retries continue. */
function awayError<S extends PooledServer>({ servers, retry, doing, hint }: PoolOptions<S>): JobError | undefined {
  const sinceMs = Math.max(...servers.map(({ breaker }) => breaker.openSinceMs ?? Number.POSITIVE_INFINITY));
  const seconds = (retry.nowMs() - sinceMs) / 1000;
  if (!(seconds > retry.maxSeconds)) {
    return undefined;
  }
  const tries = servers.reduce((sum, { breaker }) => sum + breaker.last.failures, 0);
  const found = [...new Set(servers.map(({ breaker }) => breaker.last.found))].join("; ");
  return new JobError("NETWORK", `${doing}: ${found} (tried ${tries} times in ${Math.round(seconds)} s)`, { hint });
}
