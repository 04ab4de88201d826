import type { ExitCode } from "../util/errors.js";
import type { RunReport } from "./report.js";

/** How an attempt ended. */
export type Outcome =
  | { readonly kind: "done"; readonly report: RunReport }
  | {
      readonly kind: "failed";
      /** The code of a JobError, or BUG. */
      readonly code: string;
      readonly message: string;
      readonly hint: string | undefined;
      readonly exitCode: ExitCode;
    };

/** The outcome as one word: "complete", "already_complete", "partial" or "failed". */
export function statusOf(outcome: Outcome): RunReport["status"] | "failed" {
  return outcome.kind === "done" ? outcome.report.status : "failed";
}
