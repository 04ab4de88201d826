import type { RunProfile } from "../checks/verdicts/run-profile.js";
import type { ChallengerResult } from "../publish/challenger-result.js";
import type { RunVerdict } from "../publish/run-verdict.js";

/** The profile of a run whose spans are all committed, with the runs and the checks that it is compared by. */
export interface RunReview {
  readonly profile: RunProfile;
  /** Earlier runs of the series that are published, the latest last. */
  readonly earlier: readonly RunProfile[];
  /**
   * For a held run, the logical date of the run that readers still see; undefined: there is none, or it is not known.
   */
  readonly readersHave?: string | undefined;
  /** How long earlier runs were scored, by run id; undefined: it is not known. */
  readonly seconds?: ReadonlyMap<string, number> | undefined;
  /** How the challenger agrees; undefined: the run has none. */
  readonly challenger?: ChallengerResult | undefined;
  /** The verdict; undefined: the run has no checks. */
  readonly verdict: RunVerdict | undefined;
}
