import { percent } from "../../util/shown-numbers.js";
import { apart, type Check, compared, nearness } from "../check.js";

const least = { usually: 0.25, first: 0.25 };

/** Whether many rows are there twice. */
export const twiceCheck: Check = {
  name: "twice",
  judge(night) {
    const { repeated: share } = night.run;
    const nights = night.earlier.nights.flatMap((run) =>
      run.repeated === undefined ? [] : [{ run, of: run.repeated }],
    );
    const distance = share === undefined ? undefined : nearness(share, nights, apart);
    if (share === undefined || distance === undefined) {
      return [];
    }
    const near = nights.every(({ of }) => of < share) ? distance.near : 0;
    const numbers = { share, nearest: distance.nearest.repeated ?? 0 };
    return [compared(night, null, { ...distance, near, least, numbers })];
  },
  say: ({ numbers: { share = 0, nearest = 0 }, against }, { dateOf }) =>
    `about ${percent(share, 2)} of the rows repeat another row; ${percent(nearest, 2)} on the nearest night (${dateOf(against ?? "")})`,
};
