import { percent } from "../../util/shown-numbers.js";
import { type Check, levelFor, limitFor, nearness } from "../check.js";

const least = { usually: 0.25, first: 0.25 };

/** Whether many rows are there twice. */
export const twiceCheck: Check = {
  name: "twice",
  isScaled: true,
  judge(night) {
    const { run, earlier, limits } = night;
    const nights = earlier.nights.flatMap((each) =>
      each.repeated === undefined ? [] : [{ run: each, of: each.repeated }],
    );
    const share = run.repeated ?? 0;
    const found = nearness(share, nights, (left, right) => Math.abs(left - right));
    if (found === undefined || run.repeated === undefined) {
      return [];
    }
    const limit = limitFor(found.usual, least, { factor: limits.factor, earlier });
    const isMore = nights.every(({ of }) => of < share);
    return [
      {
        check: "twice",
        column: null,
        ...levelFor({ near: isMore ? found.near : 0, limit }, night),
        measured: found.near,
        limit,
        against: found.nearest.runId,
        numbers: { share, nearest: found.nearest.repeated ?? 0 },
      },
    ];
  },
  say: ({ numbers: { share = 0, nearest = 0 }, against }, { dateOf }) =>
    `about ${percent(share, 2)} of the rows repeat another row; ${percent(nearest, 2)} on the nearest night (${dateOf(against ?? "")})`,
};
