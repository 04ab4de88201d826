import { expect, test } from "vitest";
import { fitTable, table } from "../../src/report/table.js";

const rows = [
  ["run", "rows", "model", "note"],
  ["a-1", "10", "7", "a text that is longer than the terminal has room for"],
  ["a-2", "9", "7", ""],
];

test("a table that fits, or is for no terminal, is as wide as its cells", () => {
  const wide = table(rows, { right: [1] });
  expect(fitTable(rows, { right: [1], width: undefined, leaveOut: [2], hasNotes: true })).toEqual(wide);
  expect(fitTable(rows, { right: [1], width: wide[1]?.length ?? 0, leaveOut: [2], hasNotes: true })).toEqual(wide);
});

test("notes stand below their rows in a narrow terminal, and columns are left out only where that is not enough", () => {
  expect(fitTable(rows, { right: [1], width: 40, leaveOut: [2], hasNotes: true })).toEqual([
    "  run  rows  model",
    "  a-1    10  7",
    "      a text that is longer than the",
    "      terminal has room for",
    "  a-2     9  7",
  ]);
  expect(fitTable(rows, { right: [1], width: 13, leaveOut: [2, 1], hasNotes: true })).toEqual([
    "  run  rows",
    "  a-1    10",
    "      a text that is",
    "      longer than the",
    "      terminal has room",
    "      for",
    "  a-2     9",
    "no room in 13",
    "characters for:",
    "model (7 in all",
    "rows)",
  ]);
});
