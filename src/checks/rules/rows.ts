import { percent, withSeparators } from "../../util/shown-numbers.js";
import { type Check, levelFor, limitFor, nearness } from "../check.js";
import type { RunProfile } from "../profile/run-profile.js";

const least = { usually: 0.25, first: 0.5 };
/** A night with so many times fewer rows than the nearest one is held also where only one is known. */
const clearly = 4;

function size({ rows, rejected }: Pick<RunProfile, "rows" | "rejected">): number {
  return Math.log(Math.max(1, rows + rejected));
}

/** Whether the number of rows is far from that of each earlier night. */
export const rowsCheck: Check = {
  name: "rows",
  isScaled: true,
  judge(night) {
    const { run, earlier, limits } = night;
    const nights = earlier.isFile ? [] : earlier.nights.map((each) => ({ run: each, of: size(each) }));
    const found = nearness(size(run), nights, (left, right) => Math.abs(left - right));
    if (found === undefined) {
      return [];
    }
    const limit = limitFor(found.usual, least, { factor: limits.factor, earlier });
    const all = nights.map((each) => each.run.rows + each.run.rejected);
    const { filtered = 0 } = run;
    const isClear =
      found.near > limit && clearly * (run.rows + run.rejected) < found.nearest.rows + found.nearest.rejected;
    return [
      {
        check: "rows",
        column: null,
        ...(isClear
          ? { level: "hold" as const }
          : levelFor({ near: found.near, limit }, { earlier, run: found.nearest })),
        measured: found.near,
        limit,
        against: found.nearest.runId,
        numbers: {
          rows: run.rows + run.rejected,
          nearest: found.nearest.rows + found.nearest.rejected,
          fewest: Math.min(...all),
          most: Math.max(...all),
          ...(filtered === 0 ? {} : { filtered }),
        },
      },
    ];
  },
  say({ numbers: { rows = 0, nearest = 0, filtered }, against }, { dateOf }) {
    const left = filtered === undefined ? "" : ` (${withSeparators(filtered)} filtered out by input.where)`;
    const share = Number(nearest) === 0 ? "" : `, ${percent(Number(rows) / Number(nearest))} of it`;
    return `${rowsText(rows)}${left}; the nearest night had ${withSeparators(nearest)} (${dateOf(against ?? "")})${share}`;
  },
};

/** "4,426 rows", "1 row". */
export function rowsText(rows: number | string): string {
  return `${withSeparators(rows)} ${rows === 1 ? "row" : "rows"}`;
}
