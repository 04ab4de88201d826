import { describe, expect, test } from "vitest";
import type { UnitSharing } from "#src/formats/format.js";
import { cutRows, unitRows } from "#src/formats/unit-sizes.js";

const most = 128 * 1024;

function scoring(threads: number, rowsLeft: number, batchRows = 256): UnitSharing {
  return { workers: threads, rowsLeft, batchRows: () => batchRows };
}

describe("rows of the next unit", () => {
  test("the next unit has the most rows while many are left, or if the number is unknown", () => {
    expect(unitRows(most, 0, scoring(2, 4_000_000))).toBe(most);
    expect(unitRows(most, 2_000_000, scoring(2, 4_000_000))).toBe(most);
    expect(unitRows(most, 0, undefined)).toBe(most);
  });

  test("the next unit has fewer rows towards the end, so that all threads have work", () => {
    expect(unitRows(most, 0, scoring(2, 100_000, 100))).toBe(12_500);
    expect(unitRows(most, 3_900_000, scoring(2, 4_000_000, 100))).toBe(12_500);
    expect(unitRows(most, 0, scoring(16, 1_000_000, 5))).toBe(15_625);
  });

  test("the next unit has enough rows for a message and a batch of the model", () => {
    expect(unitRows(most, 9000, scoring(4, 10_000))).toBe(1024);
    expect(unitRows(most, 9000, scoring(4, 10_000, 4096))).toBe(4096);
    expect(unitRows(most, 0, scoring(2, 100_000, 4096))).toBe(16_384);
    expect(unitRows(2000, 0, scoring(4, 10_000, 4096))).toBe(2000);
  });
});

describe("rows are cut into units", () => {
  const from = 7;
  test.each([
    { rows: 100, most: 100, cuts: [107] },
    { rows: 101, most: 100, cuts: [58, 108] },
    {
      rows: 122_880,
      most: 15_000,
      batch: 4096,
      cuts: [16_391, 32_775, 49_159, 65_543, 81_927, 98_311, 114_695, 122_887],
    },
    { rows: 10, most: 2000, batch: 4096, cuts: [17] },
  ])("$rows, at most $most", ({ rows, most: limit, batch, cuts }) => {
    const found = cutRows({ from, to: from + rows }, limit, batch === undefined ? undefined : scoring(2, rows, batch));
    expect(found.map(({ to }) => to)).toEqual(cuts);
    expect(found.map((part) => part.from)).toEqual([from, ...cuts.slice(0, -1)]);
  });
});
