import type { JobSpec } from "../spec/job-spec.js";
import { JobError } from "../util/errors.js";

/** Returns the limit of rejects for a run, which counts all of its attempts. */
export function runRejectLimit(
  { max_rejects: limit }: Pick<JobSpec, "max_rejects">,
  { rows, already }: Pick<RejectLimit, "rows" | "already">,
): RejectLimit {
  return { limit, rows, already, shownBy: "`infer-batch rejects` shows the rows of committed spans" };
}

/** Counts rejected rows against `max_rejects`. */
export interface RejectBudget {
  readonly count: number;
  /** @throws JobError TOO_MANY_REJECTS */
  readonly spend: () => void;
}

export interface RejectLimit {
  /** A count, or a percentage of the rows ("0.1%"). */
  readonly limit: number | string;
  /** The number of all rows of the run. */
  readonly rows: number;
  /** The number of rows that earlier attempts rejected. */
  readonly already: number;
  /** The part of the hint that names the command which shows the rejected rows. */
  readonly shownBy: string;
}

/**
 * The rows that may be rejected. A percentage is rounded down, but one above 0% allows a row: in a table of 569 rows 0.1%
 * would allow none, and `on_bad_row: reject` would mean nothing.
 */
export function allowedRejects({ limit, rows }: Pick<RejectLimit, "limit" | "rows">): number {
  if (typeof limit === "number") {
    return limit;
  }
  const share = Number.parseFloat(limit) / 100;
  return share === 0 ? 0 : Math.max(1, Math.floor(share * rows));
}

/** @throws JobError TOO_MANY_REJECTS when there are too many already */
export function createRejectBudget({ limit, rows, already, shownBy }: RejectLimit): RejectBudget {
  const allowed = allowedRejects({ limit, rows });
  let count = already;
  const check = (): void => {
    if (count > allowed) {
      throw new JobError(
        "TOO_MANY_REJECTS",
        `scoring: ${count} ${count === 1 ? "row" : "rows"} could not be scored, max_rejects is ${limit}${typeof limit === "number" ? "" : ` of ${rows} rows, ${allowed}`}`,
        { hint: `correct the input, or raise max_rejects; ${shownBy}` },
      );
    }
  };
  check();
  return {
    get count() {
      return count;
    },
    spend() {
      count += 1;
      check();
    },
  };
}
