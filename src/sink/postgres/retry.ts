import { JobError } from "../../errors.js";
import { classify, databaseError } from "./failures.js";

export interface RetryTools {
  /** From the first failure of a call to its last try. */
  readonly maxSeconds: number;
  readonly nowMs: () => number;
  /** In [0, 1). */
  readonly random: () => number;
  /** Ends early, by throwing, when the job is stopped. */
  readonly sleep: (ms: number) => Promise<void>;
  readonly warn: (message: string) => void;
}

const firstDelayMs = 100;
const longestDelayMs = 10_000;

/** Before try `tries` + 1: anything up to a limit that doubles, so that many clients do not come back at once. */
function delayMs(tries: number, random: number): number {
  return random * Math.min(longestDelayMs, firstDelayMs * 2 ** Math.min(tries, 20));
}

/** Why the last try failed: some failures want another way of trying. */
export type Work<T> = (last: unknown) => Promise<T>;

/**
 * Calls `work` until it comes through. What passes is tried again with growing, random pauses; what does not is
 * thrown at once. `work` must be safe to repeat, also when it did come through and nobody heard.
 * @throws JobError DATABASE when the time is up
 */
export async function retrying<T>(doing: string, tools: RetryTools, work: Work<T>): Promise<T> {
  let firstFailureMs: number | undefined;
  let last: unknown;
  for (let tries = 1; ; tries += 1) {
    try {
      return await work(last);
    } catch (error) {
      last = error;
      const failure = error instanceof JobError ? undefined : classify(error);
      if (failure?.kind !== "transient") {
        throw databaseError(doing, error);
      }
      firstFailureMs ??= tools.nowMs();
      const waitMs = delayMs(tries, tools.random());
      const goneMs = tools.nowMs() - firstFailureMs;
      if (goneMs + waitMs > tools.maxSeconds * 1000) {
        throw new JobError(
          "DATABASE",
          `${doing}: ${failure.found} (tried ${tries === 1 ? "once" : `${tries} times in ${Math.round(goneMs / 1000)} s`})`,
          {
            hint: "run the same command again; committed spans are kept. retry.max_seconds sets how long it tries",
            cause: error,
          },
        );
      }
      tools.warn(`${doing}: ${failure.found}; trying again in ${(waitMs / 1000).toFixed(1)} s`);
      await tools.sleep(waitMs);
    }
  }
}
