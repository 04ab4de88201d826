import { count, percent, withSeparators } from "../../util/shown-numbers.js";
import { apart, type Check, compared, levelOf, nearness, sizeOf } from "../check.js";
import type { RunProfile } from "../profile/run-profile.js";

const least = { usually: 0.25, first: 0.5 };
/** A night with so many times fewer rows than the nearest one is held also where only one is known. */
const clearly = 4;

function logSize(run: RunProfile): number {
  return Math.log(Math.max(1, sizeOf(run)));
}

/** Whether the number of rows is far from that of each earlier night. */
export const rowsCheck: Check = {
  name: "rows",
  judge(night) {
    const { run, earlier } = night;
    const nights = earlier.isFile ? [] : earlier.nights.map((each) => ({ run: each, of: logSize(each) }));
    const near = nearness(logSize(run), nights, apart);
    if (near === undefined) {
      return [];
    }
    const { filtered = 0 } = run;
    const nearest = sizeOf(near.nearest);
    const result = compared(night, null, {
      ...near,
      least,
      numbers: { rows: sizeOf(run), nearest, ...(filtered === 0 ? {} : { filtered }) },
    });
    if (result.level === "pass") {
      return [result];
    }
    // A night with few rows may be few because it has lost the others: those of the nearest night count.
    const { lowered: _, ...rest } = result;
    const isClear = clearly * sizeOf(run) < nearest;
    return [{ ...rest, ...(isClear ? { level: "hold" } : levelOf(true, { earlier, run: near.nearest })) }];
  },
  say({ numbers: { rows = 0, nearest = 0, filtered }, against }, { dateOf }) {
    const left = filtered === undefined ? "" : ` (${withSeparators(filtered)} filtered out by input.where)`;
    const share = Number(nearest) === 0 ? "" : `, ${percent(Number(rows) / Number(nearest))} of it`;
    return `${count(Number(rows), "row")}${left}; the nearest night had ${withSeparators(nearest)} (${dateOf(against ?? "")})${share}`;
  },
};
