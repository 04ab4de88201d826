import type { RunProfile } from "../checks/verdicts/run-profile.js";
import type { RunVerdict } from "../publish/run-verdict.js";

/** What is known of a run whose spans are all committed: its profile, and what the checks compared it with. */
export interface RunReview {
  readonly profile: RunProfile;
  /** Earlier runs of the series that are published, the latest last. */
  readonly earlier: readonly RunProfile[];
  /**
   * Of a held run, the logical date of the run that readers still have; undefined: there is none, or it is not known.
   */
  readonly readersHave?: string | undefined;
  /** undefined: the run has no checks. */
  readonly verdict: RunVerdict | undefined;
}
