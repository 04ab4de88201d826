import type { ResponseHeaders } from "../../net/request.js";

/** What a server allows in a minute, of requests or of tokens: a bucket that fills up steadily. */
interface Bucket {
  /** undefined: the server names no limit. */
  perMs: number | undefined;
  capacity: number;
  level: number;
  levelMs: number;
  /** All that was sent so far. */
  sent: number;
}

/** A request that was sent. */
interface PaceMark {
  readonly sentMs: number;
  readonly requests: number;
  readonly tokens: number;
}

/** Spreads requests as a server's headers say, so that it need not refuse any. */
interface HeaderPace {
  /** The time from which on a request of so many tokens may be sent. */
  readyMs(tokens: number): number;
  /** Counts a request that is sent. */
  sent(tokens: number): PaceMark;
  /** Learns from the headers of an answer, or of a refusal. */
  heard(mark: PaceMark, headers: ResponseHeaders): void;
}

const minuteMs = 60_000;

/** @param nowMs milliseconds of a clock that only grows */
export function createHeaderPace(nowMs: () => number): HeaderPace {
  const buckets = { requests: emptyBucket(), tokens: emptyBucket() };
  return {
    readyMs(tokens) {
      const now = nowMs();
      return Math.max(readyMs(buckets.requests, 1, now), readyMs(buckets.tokens, tokens, now));
    },
    sent(tokens) {
      take(buckets.requests, 1, nowMs());
      take(buckets.tokens, tokens, nowMs());
      return { sentMs: nowMs(), requests: buckets.requests.sent, tokens: buckets.tokens.sent };
    },
    heard(mark, headers) {
      for (const kind of ["requests", "tokens"] as const) {
        learn(buckets[kind], { headers, kind, sentMs: mark.sentMs, sentThen: mark[kind], nowMs: nowMs() });
      }
    },
  };
}

/** Whether a refusal's headers say that neither requests nor tokens are used up: only this request must wait. */
export function hasRoom(headers: ResponseHeaders): boolean {
  const left = ["requests", "tokens"].map((kind) => headers.get(`x-ratelimit-remaining-${kind}`));
  return left.some((one) => one !== null) && left.every((one) => one === null || Number(one) > 0);
}

function emptyBucket(): Bucket {
  return { perMs: undefined, capacity: 0, level: 0, levelMs: 0, sent: 0 };
}

function levelAt(bucket: Bucket, nowMs: number): number {
  return Math.min(bucket.capacity, bucket.level + (nowMs - bucket.levelMs) * (bucket.perMs ?? 0));
}

/** From when on so much may be sent. More than the bucket holds waits until it is full. */
function readyMs(bucket: Bucket, count: number, nowMs: number): number {
  const { perMs, capacity } = bucket;
  if (perMs === undefined) {
    return 0;
  }
  const missing = Math.min(count, capacity) - levelAt(bucket, nowMs);
  return missing <= 0 ? 0 : nowMs + missing / perMs;
}

function take(bucket: Bucket, count: number, nowMs: number): void {
  bucket.level = levelAt(bucket, nowMs) - count;
  bucket.levelMs = nowMs;
  bucket.sent += count;
}

interface Heard {
  readonly headers: ResponseHeaders;
  readonly kind: "requests" | "tokens";
  readonly sentMs: number;
  /** All that was sent up to the request that is answered. */
  readonly sentThen: number;
  readonly nowMs: number;
}

/** The headers say what was left when the request came; what was sent since then is not in it. */
function learn(bucket: Bucket, { headers, kind, sentMs, sentThen, nowMs }: Heard): void {
  const limit = numberOf(headers.get(`x-ratelimit-limit-${kind}`));
  const remaining = numberOf(headers.get(`x-ratelimit-remaining-${kind}`));
  if (limit === undefined || remaining === undefined || limit <= 0) {
    return;
  }
  const perMs = limit / minuteMs;
  const resetMs = durationMs(headers.get(`x-ratelimit-reset-${kind}`));
  bucket.perMs = perMs;
  bucket.capacity = Math.max(1, resetMs === undefined ? limit : Math.min(limit, remaining + resetMs * perMs));
  bucket.level = Math.min(bucket.capacity, remaining + (nowMs - sentMs) * perMs) - (bucket.sent - sentThen);
  bucket.levelMs = nowMs;
}

function numberOf(text: string | null): number | undefined {
  return text !== null && /^\d+(\.\d+)?$/.test(text) ? Number(text) : undefined;
}

const unitsMs: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A duration as OpenAI's headers have it ("6m0s", "8.64s", "12ms"), or seconds. */
function durationMs(text: string | null): number | undefined {
  if (text === null || text === "") {
    return undefined;
  }
  if (/^\d+(\.\d+)?$/.test(text)) {
    return Number(text) * 1000;
  }
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)];
  return parts.length === 0
    ? undefined
    : parts.reduce((sum, [, count, unit]) => sum + Number(count) * (unitsMs[unit ?? ""] ?? 0), 0);
}
