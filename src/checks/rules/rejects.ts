import { percent } from "../../util/shown-numbers.js";
import { apart, type Check, limitFor, nearness, sizeOf } from "../check.js";
import type { RunProfile } from "../profile/run-profile.js";

const least = { usually: 0.01, first: 0.01 };

function shareOf(run: Pick<RunProfile, "rows" | "rejected">): number {
  return run.rejected / Math.max(1, sizeOf(run));
}

/** Whether more rows are rejected than the limit, and than is usual. */
export const rejectsCheck: Check = {
  name: "rejects",
  judge({ run, earlier, limits }) {
    const share = shareOf(run);
    const nights = earlier.nights.map((each) => ({ run: each, of: shareOf(each) }));
    const near = nearness(share, nights, apart);
    const isUsual =
      near !== undefined &&
      shareOf(near.nearest) > limits.rejects &&
      near.near <= limitFor(near.usual, least, { factor: limits.factor, earlier });
    return [
      {
        column: null,
        level: share > limits.rejects && !(isUsual && earlier.known > 1) ? "hold" : "pass",
        measured: share,
        limit: limits.rejects,
        against: near?.nearest.runId ?? null,
        numbers: { rejected: run.rejected, rows: run.rows },
      },
    ];
  },
  say: ({ measured, limit }) => `${percent(measured)} of the rows were rejected (limit ${percent(limit)})`,
};
