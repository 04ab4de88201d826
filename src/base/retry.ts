import { type ErrorCode, JobError } from "./errors.js";

/** System errors of a connection that cannot be made or is lost. They are transient. */
export const connectionErrors: ReadonlySet<string> = new Set([
  "EAI_AGAIN",
  "ECONNABORTED",
  "ECONNREFUSED",
  "ECONNRESET",
  "EHOSTDOWN",
  "EHOSTUNREACH",
  "ENETDOWN",
  "ENETUNREACH",
  "ENOTFOUND",
  "EPIPE",
  "ETIMEDOUT",
]);

export interface RetryTools {
  /** Seconds from the first failure of a call, or the last one that began the time anew, to its last try. */
  readonly maxSeconds: number;
  readonly nowMs: () => number;
  readonly random: () => number;
  /** Throws early if the job is stopped. */
  readonly sleep: (ms: number) => Promise<void>;
  readonly warn: (message: string) => void;
  /** When retries were last warned of, by what was found: requests in flight fail together. */
  readonly warnedMs: Map<string, number>;
}

/** The verdict on a failed try: retry a transient error, or end with an error. */
export type RetryVerdict =
  /** `isNew`: the time that retries may take begins with this failure. */
  | { readonly kind: "again"; readonly found: string; readonly isNew?: boolean | undefined }
  | { readonly kind: "end"; readonly error: unknown };

export interface RetryRules {
  readonly judge: (error: unknown) => RetryVerdict;
  /** The code of the error when the time is up. */
  readonly code: ErrorCode;
  readonly hint: string;
}

const firstDelayMs = 100;
const longestDelayMs = 10_000;
/** An outage is warned of when it begins, and once in this time. */
const warnAgainMs = 60_000;

/**
 * Returns the pause before try `tries` + 1: random, up to a limit that doubles, so that clients do not return at once.
 */
function delayMs(tries: number, random: number): number {
  return random * Math.min(longestDelayMs, firstDelayMs * 2 ** Math.min(tries, 20));
}

/** The work to be tried. @param last the error of the last try, after which another way may be needed */
export type Work<T> = (last: unknown) => Promise<T>;

/**
 * Calls `work` until it succeeds. A transient error is retried after a growing, random pause; any other is thrown at
 * once. `work` must be safe to repeat, also if it succeeded and its answer was lost.
 * @throws JobError with the rules' code when the time is up
 */
export async function tryAgain<T>(doing: string, tools: RetryTools, rules: RetryRules, work: Work<T>): Promise<T> {
  let firstFailureMs: number | undefined;
  let last: unknown;
  for (let tries = 1; ; tries += 1) {
    try {
      return await work(last);
    } catch (error) {
      last = error;
      const verdict = rules.judge(error);
      if (verdict.kind === "end") {
        throw verdict.error;
      }
      firstFailureMs = verdict.isNew === true ? tools.nowMs() : (firstFailureMs ?? tools.nowMs());
      const waitMs = delayMs(tries, tools.random());
      const goneMs = tools.nowMs() - firstFailureMs;
      if (goneMs + waitMs > tools.maxSeconds * 1000) {
        const tried = tries === 1 ? "once" : `${tries} times in ${Math.round(goneMs / 1000)} s`;
        throw new JobError(rules.code, `${doing}: ${verdict.found} (tried ${tried})`, {
          hint: rules.hint,
          cause: error,
        });
      }
      if (tools.nowMs() - (tools.warnedMs.get(verdict.found) ?? Number.NEGATIVE_INFINITY) >= warnAgainMs) {
        tools.warnedMs.set(verdict.found, tools.nowMs());
        tools.warn(
          `${doing}: ${verdict.found}; trying again for up to ${Math.ceil(tools.maxSeconds - goneMs / 1000)} s`,
        );
      }
      await tools.sleep(waitMs);
    }
  }
}
