import { expect, test } from "vitest";
import { agreementLine } from "#src/report/agreement/tables.js";

test.each([
  [0, "00:00:00"],
  [1e-9, "00:00:00.000000001"],
  [0.000_000_4, "00:00:00.000000400"],
  [1.5, "00:00:01.5"],
  [86_399.999_999_9, "23:59:59.999999900"],
  [2 * 86_400 - 1e-8, "2 days"],
  [86_400, "1 day"],
  [86_400 + 7384.5, "1 day 02:03:04.5"],
  [Number.POSITIVE_INFINITY, "infinite"],
])("a shift of %d seconds is shown as %s", (largestShift, shown) => {
  const line = agreementLine({ kind: "times", rows: 2, most: [], equal: 1, largestShift }, 0);
  expect(line).toBe(`50.00% of the rows equal, largest shift ${shown}`);
});
