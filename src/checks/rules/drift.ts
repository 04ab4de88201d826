import { digitsApart, rangeText, shown } from "../../util/shown-numbers.js";
import { aboutColumn, type Check, comparedNights, enoughNights, type Finding } from "../check.js";
import { shapeDistance, shapeLimit } from "./shape.js";
import { medians } from "./unseen.js";

/** Whether an output has drifted since the four weeks before the last five, too slowly for a night to differ from the last ones. It only warns. */
export const driftCheck: Check = {
  name: "drift",
  isScaled: true,
  judge({ columns, earlier }) {
    return columns.flatMap((column): Finding[] => {
      const { now, older } = column;
      const found = older.length < enoughNights ? undefined : shapeDistance(now, older);
      if (found === undefined) {
        return [];
      }
      const limit = shapeLimit(found, column, earlier);
      return [
        {
          check: "drift",
          ...aboutColumn(column),
          level: found.near > limit ? "warn" : "pass",
          measured: found.near,
          limit,
          against: found.nearest.runId,
          numbers: {
            nights: older.length,
            ...medians({ now, nights: older }),
          },
        },
      ];
    });
  },
  say({ numbers: { nights = 0, median, low = 0, high = 0 } }) {
    const digits = digitsApart(median ?? 0, Number(median) > Number(high) ? high : low);
    const text = median === undefined ? "" : `: median ${shown(median, digits)}, then ${rangeText(low, high, digits)}`;
    return `it has drifted since the ${nights} nights before the last ${comparedNights}${text}`;
  },
};
