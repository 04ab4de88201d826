/** The outcome of a request that changes the number of requests in flight. */
export type RequestEnd =
  | { readonly kind: "answered"; readonly rows: number }
  /** The server asks for fewer requests, or did not answer. */
  | { readonly kind: "overloaded" }
  /** The end says nothing about the server's load. */
  | { readonly kind: "other" };

/** The permission for one request. */
export interface Turn {
  end(end: RequestEnd): void;
}

/** Bounds the requests in flight to a server by what the server is seen to take. */
export interface InFlightLimit {
  /** Requests that may be in flight now. */
  readonly limit: number;
  /** The most requests that have been in flight. */
  readonly highest: number;
  /** Whether one more request may be sent. */
  readonly isFree: boolean;
  /** Requests in flight, as a share of the limit. */
  readonly share: number;
  /** Takes a turn; `isFree` must hold. @param isWaiting whether other requests wait for a turn when this one ends */
  begin(isWaiting: () => boolean): Turn;
}

export interface InFlightOptions {
  /** The highest limit. */
  readonly most: number;
  readonly nowMs: () => number;
  /** Whether the limit grows until the server is overloaded. Default: while the throughput grows. */
  readonly isEager?: boolean | undefined;
}

/** How the limit grows and shrinks. */
interface Growth {
  readonly limit: number;
  /** Counts an answer. @param isLimiting whether other requests wait for a turn */
  answered(rows: number, isLimiting: boolean): void;
  /** The server is overloaded. Returns whether the limit was halved. */
  overloaded(): boolean;
}

/**
 * Additive increase, multiplicative decrease: the limit doubles while that raises the throughput by much, then grows
 * slowly while it raises it at all. It is halved when the server is overloaded: once for all requests that were in
 * flight then.
 */
export function createInFlightLimit({ most, nowMs, isEager }: InFlightOptions): InFlightLimit {
  const growth = isEager === true ? createEagerGrowth(most) : createGrowth({ most, nowMs });
  let inFlight = 0;
  let highest = 0;
  let halvings = 0;
  const ending = (halvingsBefore: number, isWaiting: () => boolean): Turn["end"] => {
    return (end) => {
      if (end.kind === "overloaded" && halvings === halvingsBefore) {
        halvings += growth.overloaded() ? 1 : 0;
      } else if (end.kind === "answered") {
        growth.answered(end.rows, isWaiting());
      }
      inFlight -= 1;
    };
  };
  return {
    get limit() {
      return growth.limit;
    },
    get highest() {
      return highest;
    },
    get isFree() {
      return inFlight < growth.limit;
    },
    get share() {
      return inFlight / growth.limit;
    },
    begin(isWaiting) {
      inFlight += 1;
      highest = Math.max(highest, inFlight);
      return { end: ending(halvings, isWaiting) };
    },
  };
}

const firstLimit = 2;
/** Answers in a measurement, for each request that may be in flight. */
const answersEach = 3;
const fewestAnswers = 12;
/** A higher limit is kept if it raises the throughput by this share. */
const gain = 0.03;
/** A doubled limit is kept if it raises the throughput by this share. */
const gainOfDoubling = 0.15;
/** Measurements after a limit was lowered, before it is raised again. */
const restRounds = 8;

function createGrowth({ most, nowMs }: InFlightOptions): Growth {
  let limit = Math.min(firstLimit, most);
  let isDoubling = true;
  /** The throughput that a raised limit is compared with. */
  let before: { readonly limit: number; readonly rate: number } | undefined;
  let rest = 0;
  const meter = createMeter(nowMs);
  meter.start(limit);
  const lower = (to: number): void => {
    limit = to;
    isDoubling = false;
    before = undefined;
    rest = limit === 1 ? 0 : restRounds;
  };
  const judge = (rate: number): void => {
    if (rest > 0) {
      rest -= 1;
      return;
    }
    if (before !== undefined && rate < before.rate * (1 + (isDoubling ? gainOfDoubling : gain))) {
      lower(before.limit);
      return;
    }
    const raised = Math.min(most, isDoubling ? limit * 2 : limit + Math.max(1, Math.floor(limit / 8)));
    before = raised === limit ? undefined : { limit, rate };
    limit = raised;
  };
  return {
    get limit() {
      return limit;
    },
    answered(rows, isLimiting) {
      const measured = meter.answered(rows, isLimiting);
      if (measured !== undefined) {
        if (measured.isLimiting) {
          judge(measured.rate);
        }
        meter.start(limit);
      }
    },
    overloaded() {
      lower(Math.max(1, Math.floor(limit / 2)));
      meter.start(limit);
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
function createEagerGrowth(most: number): Growth {
  let limit = Math.min(firstEagerLimit, most);
  let wasOverloaded = false;
  let failures = 0;
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
      if (failures <= failuresToHalve - 1) {
        return false;
      }
      failures = 0;
      limit = Math.max(1, limit / 2);
      wasOverloaded = true;
      return true;
    },
  };
}

/** Measures the throughput in rounds of a few answers. */
interface Meter {
  start(limit: number): void;
  /** @returns rows a millisecond at the end of a round. `isLimiting`: requests waited all the time */
  answered(rows: number, isLimiting: boolean): { readonly rate: number; readonly isLimiting: boolean } | undefined;
}

function createMeter(nowMs: () => number): Meter {
  let [toSkip, toCount, counted, startedMs] = [0, 0, 0, 0];
  let limiting = true;
  return {
    start(limit) {
      // Answers to requests of the round before show its limit.
      toSkip = limit;
      toCount = Math.max(fewestAnswers, limit * answersEach);
      [counted, startedMs, limiting] = [0, nowMs(), true];
    },
    answered(rows, isLimiting) {
      if (toSkip > 0) {
        toSkip -= 1;
        startedMs = nowMs();
        return undefined;
      }
      counted += rows;
      limiting &&= isLimiting;
      toCount -= 1;
      return toCount > 0 ? undefined : { rate: counted / Math.max(1, nowMs() - startedMs), isLimiting: limiting };
    },
  };
}
