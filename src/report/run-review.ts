import type { RunProfile } from "../checks/profile/run-profile.js";
import type { Plan } from "../plan/plan.js";
import type { ReadersView } from "../publish/published-run.js";
import type { RunComparison } from "../publish/erasure.js";
import type { RunVerdict } from "../publish/lifecycle.js";

/** The profile of a run whose spans are all committed, with the runs and the checks that it is compared by. */
export interface RunReview {
  readonly profile: RunProfile;
  /**
   * What the run is compared with, the latest last: published runs of the series, or the run of the file `reference`.
   */
  readonly earlier: readonly RunProfile[];
  /** What readers have while the run is held; undefined: it is not held, or it is not known. */
  readonly readers?: ReadersView | undefined;
  /** The params of the run, and which of them is its logical date. */
  readonly plan: Pick<Plan, "params" | "dateParam">;
  /** The file with the profile that the run is compared with; undefined: it is compared with published runs. */
  readonly reference?: string | undefined;
  /** The last published runs of the series before this one, the latest last; undefined: they are not known. */
  readonly history?: readonly RunProfile[] | undefined;
  /** How long this run and earlier ones were scored, by run id, as `history` says; undefined: it is not known. */
  readonly seconds?: ReadonlyMap<string, number> | undefined;
  /** How a second model agrees; undefined: the run has none. */
  readonly comparison?: RunComparison | undefined;
  /** The verdict; undefined: the run has no checks. */
  readonly verdict: RunVerdict | undefined;
}
