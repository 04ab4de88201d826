// The rate limit of the mock server: two buckets, of requests and of tokens, that fill up steadily. An OpenAI server
// describes them in headers and counts a request's tokens before it answers: the prompt, and the most it may write.
export function createLimit({ requestsPerMinute, tokensPerMinute, burstSeconds = 60 }) {
  const requests = createBucket(requestsPerMinute, burstSeconds);
  const tokens = createBucket(tokensPerMinute, burstSeconds);
  return {
    /** Takes a request with its tokens from both buckets. Returns the seconds to wait, and the bucket, where it cannot. */
    take(count, nowMs) {
      const wait = { requests: requests.waitFor(1, nowMs), tokens: tokens.waitFor(count, nowMs) };
      if (wait.requests > 0 || wait.tokens > 0) {
        const kind = wait.requests > wait.tokens ? "requests" : "tokens";
        return { seconds: wait[kind], kind, limit: (kind === "requests" ? requests : tokens).perMinute };
      }
      requests.take(1, nowMs);
      tokens.take(count, nowMs);
      return undefined;
    },
    headers(nowMs) {
      return { ...requests.headers("requests", nowMs), ...tokens.headers("tokens", nowMs) };
    },
    /** How much was taken, and how much could have been, between the first request and the last that was let through. */
    use: () => ({ requests: requests.use(), tokens: tokens.use() }),
  };
}

/** A bucket; without a limit it is never empty. */
function createBucket(perMinute, burstSeconds) {
  const perMs = (perMinute ?? 0) / 60_000;
  const size = Math.max(1, perMs * burstSeconds * 1000);
  let level = size;
  let lastMs;
  let firstMs;
  let taken = 0;
  let lastTakenMs;
  const fill = (nowMs) => {
    firstMs ??= nowMs;
    level = Math.min(size, level + (nowMs - (lastMs ?? nowMs)) * perMs);
    lastMs = nowMs;
  };
  return {
    perMinute,
    waitFor(count, nowMs) {
      if (perMinute === undefined) {
        return 0;
      }
      fill(nowMs);
      // A request that is larger than the bucket waits until it is full.
      return Math.max(0, (Math.min(count, size) - level) / perMs / 1000);
    },
    take(count, nowMs) {
      level -= perMinute === undefined ? 0 : count;
      taken += count;
      lastTakenMs = nowMs;
    },
    headers(name, nowMs) {
      if (perMinute === undefined) {
        return {};
      }
      fill(nowMs);
      return {
        [`x-ratelimit-limit-${name}`]: String(perMinute),
        [`x-ratelimit-remaining-${name}`]: String(Math.max(0, Math.floor(level))),
        [`x-ratelimit-reset-${name}`]: duration((size - level) / perMs),
      };
    },
    use: () => ({
      taken,
      offered: perMinute === undefined || firstMs === undefined ? null : size + (lastTakenMs - firstMs) * perMs,
    }),
  };
}

/** A duration as OpenAI's headers have it: 6m0s, 8.64s, 12ms. */
function duration(ms) {
  if (ms < 1000) {
    return `${Math.ceil(ms)}ms`;
  }
  const minutes = Math.floor(ms / 60_000);
  const seconds = Number(((ms % 60_000) / 1000).toFixed(3));
  return minutes > 0 ? `${minutes}m${seconds}s` : `${seconds}s`;
}
