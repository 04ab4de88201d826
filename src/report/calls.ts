import { setTimeout as sleep } from "node:timers/promises";
import { errnoOf } from "../base/errors.js";
import type { AttemptRecord } from "./attempt-record.js";

/** A time of day, "06:00", in a time zone. */
interface TimeOfDay {
  readonly time: string;
  /** The IANA name of the time zone. */
  readonly timeZone: string;
}

const dayMs = 86_400_000;

/**
 * Returns the instant of a time of day that is closest to `nowMs`, in milliseconds since 1970: for 06:00, an attempt
 * that starts in the evening has the deadline of the next morning, and an attempt that starts in the morning has that
 * of the same morning.
 */
export function deadlineNear(nowMs: number, { time, timeZone }: TimeOfDay): number {
  const today = Math.floor(localMs(nowMs, timeZone) / dayMs) * dayMs;
  const [hours = 0, minutes = 0] = time.split(":").map(Number);
  const candidates = [-1, 0, 1].map((day) =>
    instantOf(today + day * dayMs + (hours * 60 + minutes) * 60_000, timeZone),
  );
  return candidates.reduce((nearest, ms) => (Math.abs(ms - nowMs) < Math.abs(nearest - nowMs) ? ms : nearest));
}

/** Returns the local date and time of an instant, in milliseconds as if they were UTC. */
export function localMs(ms: number, timeZone: string): number {
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone,
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
    second: "numeric",
  });
  const parts = new Map(format.formatToParts(ms).map(({ type, value }) => [type, Number(value)]));
  const part = (type: Intl.DateTimeFormatPartTypes): number => parts.get(type) ?? 0;
  return Date.UTC(part("year"), part("month") - 1, part("day"), part("hour"), part("minute"), part("second"));
}

/** In milliseconds. */
function offsetMs(ms: number, timeZone: string): number {
  const wholeSeconds = Math.floor(ms / 1000) * 1000;
  return localMs(wholeSeconds, timeZone) - wholeSeconds;
}

/**
 * Returns the instant of a local date and time, which is given in milliseconds as if it were UTC. As a clock that is not
 * set shows them, a time that the clocks skip is as long after midnight as its name says (02:30 is 03:30), and of a time
 * that comes twice, the first one is meant.
 */
export function instantOf(local: number, timeZone: string): number {
  const [before, after] = [local - dayMs, local + dayMs].map((ms) => local - offsetMs(ms, timeZone)) as [
    number,
    number,
  ];
  const exact = [before, after].filter((ms) => offsetMs(ms, timeZone) === local - ms);
  return exact.length === 0 ? before : Math.min(...exact);
}

/** Returns the time of day of an instant: "06:42". */
export function timeOfDayAt(ms: number, timeZone: string): string {
  return new Date(localMs(ms, timeZone)).toISOString().slice(11, 16);
}

/** The deadline that an attempt misses. Times are in milliseconds since 1970. */
export interface Lateness {
  readonly deadlineMs: number;
  /** The forecast of the end of the attempt; undefined: the deadline has passed. */
  readonly expectedEndMs: number | undefined;
}

/** The shortest time of scoring for which a forecast is made. The first batches are slow. */
const leastSeconds = 20;

/**
 * Returns whether an unfinished attempt is late: the deadline has passed, or its rows will not be scored by then at the
 * rate so far.
 */
export function latenessOf(
  { rowsToScore, timeline, seconds }: Pick<AttemptRecord, "rowsToScore" | "timeline" | "seconds">,
  { nowMs, deadlineMs }: { readonly nowMs: number; readonly deadlineMs: number },
): Lateness | undefined {
  if (nowMs >= deadlineMs) {
    return { deadlineMs, expectedEndMs: undefined };
  }
  const done = timeline.rows.reduce((sum, rows) => sum + rows, 0);
  if (rowsToScore === undefined || done === 0 || seconds < leastSeconds) {
    return undefined;
  }
  const expectedEndMs = nowMs + ((Math.max(rowsToScore - done, 0) * seconds) / done) * 1000;
  return expectedEndMs > deadlineMs ? { deadlineMs, expectedEndMs } : undefined;
}

interface Ping {
  /** The key of the spec ("report.on_failure"), for messages: the URL may contain a secret, and is never written. */
  readonly key: string;
  readonly url: string;
  /** JSON that is sent by POST; undefined for a GET. */
  readonly body: string | undefined;
  /** Sent as `Authorization: Bearer`. */
  readonly token?: string | undefined;
  /** The limit of all tries together. */
  readonly timeoutMs: number;
  readonly tries: number;
}

const pauseMs = 250;

/**
 * Calls a URL. Resolves to an error for the log, and never rejects: a failed call does not change the run's outcome.
 * Redirects are not followed, because they could pass a secret in the URL on to another server.
 */
export async function ping({ key, tries, ...request }: Ping): Promise<string | undefined> {
  const signal = AbortSignal.timeout(request.timeoutMs);
  for (let turn = 1; ; turn += 1) {
    const failure = await call(request, signal);
    if (failure === undefined) {
      return undefined;
    }
    if (!failure.isTransient || turn === tries || signal.aborted) {
      return `calling ${key}: ${failure.what}`;
    }
    // When the time is over, the next call ends at once and says so.
    await sleep(pauseMs * 2 ** turn, undefined, { signal }).catch(() => undefined);
  }
}

interface Failure {
  /** The error, without any part of the URL. */
  readonly what: string;
  readonly isTransient: boolean;
}

async function call(
  { url, body, token, timeoutMs }: Pick<Ping, "url" | "body" | "token" | "timeoutMs">,
  signal: AbortSignal,
): Promise<Failure | undefined> {
  try {
    const response = await fetch(url, {
      signal,
      redirect: "manual",
      headers: {
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      },
      ...(body === undefined ? {} : { method: "POST", body }),
    });
    await response.body?.cancel();
    const { ok, status } = response;
    return ok ? undefined : { what: `HTTP ${status}`, isTransient: status >= 500 || status === 429 };
  } catch (error) {
    if (signal.aborted) {
      return { what: `no answer within ${timeoutMs / 1000} s`, isTransient: false };
    }
    const errno = errnoOf(error instanceof Error ? error.cause : undefined);
    return { what: errno ?? "the request failed", isTransient: errno !== undefined };
  }
}
