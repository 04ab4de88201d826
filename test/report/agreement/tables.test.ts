import { expect, test } from "vitest";
import type { Measures } from "#src/checks/agreement.js";
import { agreementLine, agreementTables } from "#src/report/agreement.js";

test.each([
  [0, "0 s"],
  [1e-9, "1e-9 s"],
  [1.5, "1.5 s"],
  [86_399, "86399 s"],
  [86_399.999_999_9, "1 day"],
  [86_400 + 7384.5, "1.08547 days"],
])("a shift of %d seconds is shown as %s", (largestShift, shown) => {
  const figures = { rows_equal: 1, largest_shift_seconds: largestShift };
  const line = agreementLine({ kind: "times", rows: 2, most: [], flips: [], figures }, 0);
  expect(line).toBe(`50% of the rows equal, largest shift ${shown}`);
});

test("tables of an agreement leave out columns in a narrow terminal, and put cells that are still too wide below one another", () => {
  const most = [{ row: 7, one: '"a long answer to a question"', other: '"another long answer"', distance: 2 }];
  const flips = most.map(({ one, other }) => ({ one, other, rows: 3 }));
  const about = { rows: 9, most, flips: [] };
  const shown = {
    columns: [
      ["answer", { ...about, kind: "labels", most: [], figures: { rows_equal: 6, psi: 0.25 }, flips }],
      ["embedding", { ...about, kind: "vectors", figures: { rows_equal: 8, lowest_cosine: 0.5, mean_cosine: 0.75 } }],
      ["since", { ...about, kind: "times", figures: { rows_equal: 6, largest_shift_seconds: 2 } }],
    ] satisfies [string, Measures][],
    apart: [],
    tolerance: 0,
  };
  expect(agreementTables(shown, ["A", "B"], 26)).toMatchInlineSnapshot(`
    [
      "labels",
      "  column  rows equal   PSI",
      "  answer      66.67%  0.25",
      "vectors",
      "  column     rows equal",
      "  embedding      88.89%",
      "no room in 26 characters",
      "for: lowest cosine (0.5 in",
      "all rows), mean cosine",
      "(0.75 in all rows)",
      "dates and times",
      "  column  rows equal",
      "  since       66.67%",
      "no room in 26 characters",
      "for: largest shift (2 s in",
      "all rows)",
      "labels that differ",
      "  column",
      "    A",
      "    B",
      "  answer",
      "    "a long answer to a",
      "    question"",
      "    "another long answer"",
      "no room in 26 characters",
      "for: rows (3 in all rows)",
      "rows that differ most in embedding",
      "  row",
      "    A",
      "    B",
      "    1 - cosine",
      "  7",
      "    "a long answer to a",
      "    question"",
      "    "another long answer"",
      "    2",
      "rows that differ most in since",
      "  row",
      "    A",
      "    B",
      "    shift",
      "  7",
      "    "a long answer to a",
      "    question"",
      "    "another long answer"",
      "    2 s",
    ]
  `);
});
