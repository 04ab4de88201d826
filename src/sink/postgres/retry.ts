import { JobError } from "../../util/errors.js";
import { type RetryRules, type RetryTools, tryAgain, type Work } from "../../util/retry.js";
import { classify, databaseError } from "./failures.js";

/**
 * Retries `work` while it fails with transient errors of the database. @throws JobError DATABASE when the time is up:
 * see `tryAgain`
 */
export async function retrying<T>(doing: string, tools: RetryTools, work: Work<T>): Promise<T> {
  const rules: RetryRules = {
    judge(error) {
      const failure = error instanceof JobError ? undefined : classify(error);
      return failure?.kind === "transient"
        ? { kind: "again", found: failure.found }
        : { kind: "end", error: databaseError(doing, error) };
    },
    code: "DATABASE",
    hint: "run the same command again; committed spans are kept. retry.max_seconds sets how long it tries",
  };
  return await tryAgain(doing, tools, rules, work);
}
