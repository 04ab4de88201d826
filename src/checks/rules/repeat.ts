import { type Check, levelOf } from "../check.js";
import { histogramOf } from "../profile/column.js";
import type { RunProfile } from "../profile/run-profile.js";

/** Fewer bins than these in all columns may be equal by chance. */
const leastBins = 20;

/** What a run's rows have in common with those of another run if they are the same rows. */
function contentOf({ rows, rejected, outputs, features }: RunProfile): string | undefined {
  const columns = [...features, ...outputs].map(([name, column]) => {
    const { shift, keys, counts } = histogramOf(column);
    return [name, column.nulls, shift, keys, counts] as const;
  });
  const bins = columns.reduce((sum, [, , , keys]) => sum + keys.length, 0);
  return bins < leastBins ? undefined : JSON.stringify([rows, rejected, columns]);
}

/** Whether the run has exactly the rows of an earlier one, where no two earlier runs have the same. */
export const repeatCheck: Check = {
  name: "repeat",
  judge(night) {
    const { run, earlier } = night;
    const now = contentOf(run);
    const before = earlier.nights.map(contentOf);
    const known = before.filter((each) => each !== undefined);
    if (earlier.nights.length === 0 || earlier.isFile || now === undefined) {
      return [];
    }
    const equal = before.lastIndexOf(now);
    const isNew = new Set(known).size === known.length;
    return [
      {
        column: null,
        ...levelOf(equal >= 0 && isNew, night),
        measured: equal >= 0 ? 1 : 0,
        limit: 0,
        against: earlier.nights[equal]?.runId ?? null,
        numbers: {},
      },
    ];
  },
  say: ({ against }, { dateOf }) => `exactly the rows of ${dateOf(against ?? "")}: was the input refreshed?`,
};
