import type { ResponseHeaders } from "../../net/request.js";

/** Spreads requests as a server's headers say, so that it need not refuse any. */
interface HeaderPace {
  /** The time from which on a request of so many tokens may be sent. */
  readyMs(tokens: number): number;
  /** Counts a request that is sent. Returns what learns from the headers of its answer, or of a refusal. */
  sent(tokens: number): (headers: ResponseHeaders) => void;
}

/** @param nowMs milliseconds of a clock that only grows */
export function createHeaderPace(nowMs: () => number): HeaderPace {
  const [requests, tokens] = [createBucket("requests", nowMs), createBucket("tokens", nowMs)];
  return {
    readyMs: (count) => Math.max(requests.readyMs(1), tokens.readyMs(count)),
    sent(count) {
      const learn = [requests.take(1), tokens.take(count)];
      return (headers) => {
        for (const one of learn) {
          one(headers);
        }
      };
    },
  };
}

/** Whether a refusal's headers say that neither requests nor tokens are used up: only this request must wait. */
export function hasRoom(headers: ResponseHeaders): boolean {
  const left = ["requests", "tokens"].map((kind) => headers.get(`x-ratelimit-remaining-${kind}`));
  return left.some((one) => one !== null) && left.every((one) => one === null || Number(one) > 0);
}

const minuteMs = 60_000;

/** What a server allows in a minute, of requests or of tokens: a bucket that fills up steadily. */
function createBucket(kind: "requests" | "tokens", nowMs: () => number) {
  /** undefined: the server names no limit. */
  let perMs: number | undefined;
  /** `sent`: all that was sent so far. */
  let [capacity, level, levelMs, sent] = [0, 0, 0, 0];

  const levelAt = (ms: number): number => Math.min(capacity, level + (ms - levelMs) * (perMs ?? 0));

  return {
    /** From when on so much may be sent. More than the bucket holds waits until it is full. */
    readyMs(count: number): number {
      if (perMs === undefined) {
        return 0;
      }
      const ms = nowMs();
      const missing = Math.min(count, capacity) - levelAt(ms);
      return missing <= 0 ? 0 : ms + missing / perMs;
    },
    take(count: number): (headers: ResponseHeaders) => void {
      const sentMs = nowMs();
      [level, levelMs] = [levelAt(sentMs) - count, sentMs];
      sent += count;
      const sentThen = sent;

      // The headers say what was left when the request came; what was sent since then is not in it.
      return (headers) => {
        const limit = numberOf(headers.get(`x-ratelimit-limit-${kind}`));
        const remaining = numberOf(headers.get(`x-ratelimit-remaining-${kind}`));
        if (limit === undefined || remaining === undefined || limit <= 0) {
          return;
        }
        perMs = limit / minuteMs;
        const resetMs = durationMs(headers.get(`x-ratelimit-reset-${kind}`));
        capacity = Math.max(1, resetMs === undefined ? limit : Math.min(limit, remaining + resetMs * perMs));
        levelMs = nowMs();
        level = Math.min(capacity, remaining + (levelMs - sentMs) * perMs) - (sent - sentThen);
      };
    },
  };
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
