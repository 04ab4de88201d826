import { expect, test } from "vitest";
import type { Measures } from "#src/checks/agreement.js";
import { agreementLine, agreementTables, differentRowTables } from "#src/report/agreement.js";

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

test("tables of an agreement leave out columns in a narrow terminal, and put cells that are still too wide below one another", () => {
  const most = [{ row: 7, one: '"a long answer to a question"', other: '"another long answer"', distance: 2 }];
  const flips = most.map(({ one, other }) => ({ one, other, rows: 3 }));
  const shown = {
    columns: new Map<string, Measures>([
      ["answer", { kind: "labels", rows: 9, most: [], equal: 6, psi: 0.25, flips }],
      ["embedding", { kind: "vectors", rows: 9, most, meanCosine: 0.75, lowestCosine: 0.5, without: 0 }],
      ["since", { kind: "times", rows: 9, most, equal: 6, largestShift: 2 }],
    ]),
    tolerance: 0,
    names: ["A", "B"],
    width: 26,
  } as const;
  expect([...agreementTables(shown), ...differentRowTables(shown)]).toMatchInlineSnapshot(`
    [
      "labels",
      "  column   equal   PSI",
      "  answer  66.67%  0.25",
      "labels that differ",
      "  A",
      "    B",
      "  "a long answer to a",
      "  question"",
      "    "another long answer"",
      "no room in 26 characters",
      "for: column (answer in all",
      "rows), rows (3 in all",
      "rows)",
      "vectors",
      "  column     lowest",
      "  embedding     0.5",
      "no room in 26 characters",
      "for: mean cosine (0.75 in",
      "all rows), rows without (0",
      "in all rows)",
      "dates and times",
      "  column   equal",
      "  since   66.67%",
      "no room in 26 characters",
      "for: largest shift",
      "(00:00:02 in all rows)",
      "rows that differ most in embedding",
      "  row",
      "    A",
      "    B",
      "  7",
      "    "a long answer to a",
      "    question"",
      "    "another long answer"",
      "no room in 26 characters",
      "for: 1 - cosine (2 in all",
      "rows)",
      "rows that differ most in since",
      "  row",
      "    A",
      "    B",
      "  7",
      "    "a long answer to a",
      "    question"",
      "    "another long answer"",
      "no room in 26 characters",
      "for: shift (00:00:02 in",
      "all rows)",
    ]
  `);
});
