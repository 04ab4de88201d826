import type { ExitCode } from "../util/errors.js";
import type { RunReport } from "./report.js";

/** How an attempt ended. */
export type Outcome = { readonly kind: "done"; readonly report: RunReport } | FailedOutcome;

/** How an attempt failed. */
export interface FailedOutcome {
  readonly kind: "failed";
  /** The code of a JobError, or BUG. */
  readonly code: string;
  readonly message: string;
  readonly hint: string | undefined;
  readonly exitCode: ExitCode;
}

/** The exit code of an attempt. */
export function exitCodeOfOutcome(outcome: Outcome): ExitCode {
  return outcome.kind === "done" ? (outcome.report.decided?.error.exitCode ?? 0) : outcome.exitCode;
}

/** The outcome as one word: the status of the report, or "failed". */
export function statusOf(outcome: Outcome): RunReport["status"] | "failed" {
  return outcome.kind === "done" ? outcome.report.status : "failed";
}

/**
 * Returns a failure's fields under their JSON names. The message and the hint are the same as on stderr.
 * @param runId undefined: the attempt has found no run
 */
export function failureFields(
  { code, message, hint, exitCode }: FailedOutcome,
  runId: string | undefined,
): Readonly<Record<string, unknown>> {
  return { run_id: runId ?? null, status: "failed", exit_code: exitCode, code, message, hint: hint ?? null };
}
