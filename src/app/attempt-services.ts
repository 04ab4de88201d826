import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import type { Log } from "../scoring/context.js";
import type { JobSpec } from "../spec/job-spec.js";
import { errnoOf } from "../util/errors.js";
import type { RetryTools } from "../util/retry.js";

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
  const host = hostname().replaceAll(/[^A-Za-z0-9-]/g, "_");
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
  const writer = `${host}.${process.pid}.${randomBytes(4).toString("hex")}`;
  ownWriters.add(writer);
  return { writer, isDead: (other) => isDead(other, host), retry, warn, signal };
}

/** Sleeps until the time is over. @throws the signal's reason if the job is stopped first */
async function interruptibleSleep(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch((error: unknown) => {
    signal.throwIfAborted();
    throw error;
  });
}

/** The writers of this process. It may have several jobs open at the same time, such as those of a backfill. */
const ownWriters = new Set<string>();

/**
 * Whether a process has ended. Known for processes of this host only; one with our own pid that is not this process is
 * of an earlier container.
 * @param name begins with the name of a writer
 */
function isDead(name: string, host: string): boolean {
  const [otherHost, pidText, random] = name.split(".");
  if (ownWriters.has(`${otherHost}.${pidText}.${random}`)) {
    return false;
  }
  const pid = Number(pidText);
  if (otherHost !== host || !Number.isSafeInteger(pid) || pid <= 0) {
    return false;
  }
  if (pid === process.pid) {
    return true;
  }
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return errnoOf(error) === "ESRCH";
  }
}
