import { afterEach, expect, test, vi } from "vitest";
import { bestEffort } from "#src/base/promises.js";

afterEach(() => {
  vi.useRealTimers();
});

test("work that only informs people ends after a few seconds, and never fails", async () => {
  vi.useFakeTimers();
  let stop: AbortSignal | undefined;
  const waiting = bestEffort((signal) => {
    stop = signal;
    return new Promise(() => {});
  });
  await vi.advanceTimersByTimeAsync(2999);
  let ended = false;
  void waiting.then(() => (ended = true));
  await Promise.resolve();
  expect([ended, stop?.aborted]).toEqual([false, false]);
  await vi.advanceTimersByTimeAsync(1);
  await waiting;
  expect(stop?.aborted).toBe(true);
  await bestEffort(() => Promise.reject(new Error("away")));
  expect(vi.getTimerCount()).toBe(0);
});
