import { percent } from "../../util/shown-numbers.js";
import { type Check, limitFor, nearness } from "../check.js";
import type { RunProfile } from "../profile/run-profile.js";

const least = { usually: 0.01, first: 0.01 };

function shareOf({ rows, rejected }: Pick<RunProfile, "rows" | "rejected">): number {
  return rejected / Math.max(1, rows + rejected);
}

/** Whether more rows are rejected than the limit, and than is usual. */
export const rejectsCheck: Check = {
  name: "rejects",
  isScaled: false,
  judge({ run, earlier, limits }) {
    const share = shareOf(run);
    const nights = earlier.nights.map((each) => ({ run: each, of: shareOf(each) }));
    const found = nearness(share, nights, (left, right) => Math.abs(left - right));
    const isUsual =
      found !== undefined &&
      shareOf(found.nearest) > limits.rejects &&
      found.near <= limitFor(found.usual, least, { factor: limits.factor, earlier });
    return [
      {
        check: "rejects",
        column: null,
        level: share > limits.rejects && !(isUsual && earlier.known > 1) ? "hold" : "pass",
        measured: share,
        limit: limits.rejects,
        against: found?.nearest.runId ?? null,
        numbers: { rejected: run.rejected, rows: run.rows },
      },
    ];
  },
  say: ({ measured, limit }) => `${percent(measured)} of the rows were rejected (limit ${percent(limit)})`,
};
