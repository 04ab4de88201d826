import { expect, test } from "vitest";
import { cutToWidth, wrapToWidth } from "../../src/base/display-width.js";
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

test("notes and their heading stand below the rows in a narrow terminal, and columns are left out only where that is not enough", () => {
  expect(fitTable(rows, { right: [1], width: 40, leaveOut: [2], hasNotes: true })).toEqual([
    "  run  rows  model",
    "      note",
    "  a-1    10  7",
    "      a text that is longer than the",
    "      terminal has room for",
    "  a-2     9  7",
  ]);
  expect(fitTable(rows, { right: [1], width: 13, leaveOut: [2, 1], hasNotes: true })).toEqual([
    "  run  rows",
    "note",
    "  a-1    10",
    "a text that",
    "is longer",
    "than the",
    "terminal has",
    "room for",
    "  a-2     9",
    "no room in 13",
    "characters",
    "for: model (7",
    "in all rows)",
  ]);
});

test("columns are aligned where a character occupies two columns of a terminal or none", () => {
  const names = ["name", "日本語", "한국어", "한국어".normalize("NFD"), "ｶﾅ", "สวัสดี", "e\u0301", "👩‍👩‍👧‍👦", "🇨🇦"];
  expect(table(names.map((name) => [name, "|"]))).toEqual([
    "  name    |",
    "  日本語  |",
    "  한국어  |",
    `  ${"한국어".normalize("NFD")}  |`,
    "  ｶﾅ      |",
    "  สวัสดี    |",
    "  e\u0301       |",
    "  👩‍👩‍👧‍👦      |",
    "  🇨🇦      |",
  ]);
});

test("a text is cut and broken between characters as a reader sees them", () => {
  expect([cutToWidth("日本語", 6), cutToWidth("日本語", 5), cutToWidth("日本語", 4)]).toEqual([
    "日本語",
    "日本…",
    "日…",
  ]);
  expect(wrapToWidth("👩‍👩‍👧‍👦🇨🇦👍🏽 e\u0301e\u0301e\u0301", 2)).toEqual([
    "👩‍👩‍👧‍👦",
    "🇨🇦",
    "👍🏽",
    "e\u0301e\u0301",
    "e\u0301",
  ]);
});

test.each([
  [
    "of Latin letters",
    ["a-1", "jobs/daily.yaml", "reading s3://lake/2026-11-26/part-0.parquet: its ETag is not the plan's"],
  ],
  ["of wide characters", ["札幌-1", "毎晩の解約予測", "読み込み中: 表の列 年齢 がありません。仕様を直してください"]],
])("no line of a table %s is wider than the terminal", (_, cells) => {
  const isWide = /[\u3000-\u9fff]/gu;
  const occupied = (line: string): number => line.length + (line.match(isWide)?.length ?? 0);
  for (let width = 8; width <= 120; width += 1) {
    for (const [leaveOut, hasNotes] of [
      [[], true],
      [[1], true],
      [[2, 1], false],
    ] as const) {
      const lines = fitTable([["run", "spec", "note"], cells], { width, leaveOut, hasNotes });
      expect([width, lines.filter((line) => occupied(line) > width)]).toEqual([width, []]);
      const said = [...lines, cells[1]].join("").replaceAll(/\s/gu, ""); // the column that may be left out
      expect(cells.every((cell) => leaveOut.length === 2 || said.includes(cell.replaceAll(/\s/gu, "")))).toBe(true);
    }
  }
});
