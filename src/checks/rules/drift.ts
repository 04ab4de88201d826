import { type Check, comparedNights, enoughNights } from "../check.js";
import { mediansOf, mediansText } from "../medians.js";
import { comparedShape } from "./shape.js";

/** Whether an output has drifted since the four weeks before the last five, too slowly for a night to differ from the last ones. It only warns. */
export const driftCheck: Check = {
  name: "drift",
  judge: (night) =>
    night.columns
      .filter(({ older }) => older.length >= enoughNights)
      .flatMap((column) => {
        const { now, older: nights } = column;
        return comparedShape(night, column, {
          nights,
          mayHold: () => false,
          facts: () => ({ nights: nights.length, ...mediansOf({ now, nights }) }),
        });
      }),
  say({ numbers }) {
    const text = mediansText(numbers, "then");
    return `it has drifted since the ${numbers["nights"]} nights before the last ${comparedNights}${text === undefined ? "" : `: ${text}`}`;
  },
};
