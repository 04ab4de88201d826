import type { RetryTools } from "#src/base/retry.js";

/** Retries as a run makes them. */
export function retriesFor(maxSeconds: number, warn: RetryTools["warn"]): RetryTools {
  return {
    maxSeconds,
    nowMs: () => performance.now(),
    random: Math.random,
    sleep: (ms) => new Promise((done) => setTimeout(done, ms)),
    warn,
    warnedMs: new Map(),
  };
}
