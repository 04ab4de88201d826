import { describe, expect, test } from "vitest";
import type { ScoringThreads } from "#src/decode/port.js";
import { unitRows } from "#src/decode/unit-rows.js";

const most = 128 * 1024;

function scoring(threads: number, rowsLeft: number, batchRows = 256): ScoringThreads {
  return { threads, rowsLeft, batchRows: () => batchRows } as Partial<ScoringThreads> as ScoringThreads;
}

describe("rows of the next unit", () => {
  test("are as many as may be while much is left, or where nothing is known", () => {
    expect(unitRows(most, 0, scoring(2, 4_000_000))).toBe(most);
    expect(unitRows(most, 2_000_000, scoring(2, 4_000_000))).toBe(most);
    expect(unitRows(most, 0, undefined)).toBe(most);
  });

  test("become fewer towards the end, so that all threads have some of it", () => {
    expect(unitRows(most, 0, scoring(2, 100_000))).toBe(12_500);
    expect(unitRows(most, 3_900_000, scoring(2, 4_000_000))).toBe(12_500);
    expect(unitRows(most, 0, scoring(16, 1_000_000))).toBe(15_625);
  });

  test("are worth their message, and a batch of the model", () => {
    expect(unitRows(most, 9000, scoring(4, 10_000))).toBe(1024);
    expect(unitRows(most, 9000, scoring(4, 10_000, 4096))).toBe(4096);
    expect(unitRows(2000, 0, scoring(4, 10_000, 4096))).toBe(2000);
  });
});
