import { setTimeout as sleep } from "node:timers/promises";
import type { Log } from "../scoring/context.js";
import type { JobSpec } from "../spec/job-spec.js";
import type { RetryTools } from "../util/retry.js";
import { isDeadWriter, newWriter } from "../util/spool.js";

/** What the adapters of an attempt share. */
export interface AttemptServices {
  /** Identifies this process among all processes on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
  readonly retry: RetryTools;
  readonly warn: (message: string) => void;
  readonly signal: AbortSignal;
}

export function attemptServices(
  { retry: { max_seconds: maxSeconds } }: Pick<JobSpec, "retry">,
  log: Log,
  signal: AbortSignal,
): AttemptServices {
  const warn = (message: string): void => {
    log.warn(message);
  };
  const retry = {
    maxSeconds,
    nowMs: () => performance.now(),
    random: Math.random,
    sleep: (ms: number) => interruptibleSleep(ms, signal),
    warn,
    warnedMs: new Map(),
  };
  return { writer: newWriter(), isDead: isDeadWriter, retry, warn, signal };
}

/** Sleeps until the time is over. @throws the signal's reason if the job is stopped first */
async function interruptibleSleep(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch((error: unknown) => {
    signal.throwIfAborted();
    throw error;
  });
}
