import { describe, expect, test } from "vitest";
import { countLevels } from "#src/formats/parquet/pages/runs.js";
import { packedRun, repeatedRun } from "../../../support/parquet-runs.js";
import { randomOf } from "../../../support/random.js";

/** Counts where other bytes lie before and behind. */
function count(runs: readonly number[], most: number, levels: number): { first: number; zeros: number } {
  const bytes = Uint8Array.from([255, 255, ...runs, 255, 255, 255, 255]);
  return countLevels(bytes, { at: 2, end: 2 + runs.length, most }, levels);
}

test.each([1, 2, 3, 4, 7, 12])("levels up to %i are counted, repeated and packed", (most) => {
  const random = randomOf(most);
  const width = Math.ceil(Math.log2(most + 1));
  for (let round = 0; round < 200; round += 1) {
    const levels: number[] = [];
    const runs: number[] = [];
    for (let left = Math.floor(random() * 6); left >= 0; left -= 1) {
      const length = 1 + Math.floor(random() * 40);
      if (random() < 0.5) {
        const level = Math.floor(random() * (most + 1));
        runs.push(...repeatedRun(level, length, width));
        levels.push(...Array.from({ length }, () => level));
      } else {
        const size = left === 0 ? length : Math.ceil(length / 8) * 8;
        const some = Array.from({ length: size }, () => Math.floor(random() * (most + 1)));
        runs.push(...packedRun(some, width));
        levels.push(...some);
      }
    }
    const due = 1 + Math.floor(random() * levels.length); // what is behind them does not count
    const expected = { first: levels[0], zeros: levels.slice(0, due).filter((level) => level === 0).length };
    expect(count(runs, most, due)).toEqual(expected);
  }
});

describe("levels are refused", () => {
  test.each<{ what: string; runs: number[]; most: number; due?: number; says: string }>([
    {
      what: "that are too few",
      runs: repeatedRun(1, 6, 1),
      most: 1,
      says: "levels for 6 values, its header promises 7",
    },
    { what: "that are not there", runs: [], most: 1, says: "levels for 0 values" },
    { what: "in a run of none", runs: repeatedRun(1, 0, 1), most: 1, says: "levels for 0 values" },
    { what: "in a run that is cut off", runs: [2 * 2 + 1, 255], most: 1, due: 16, says: "levels for 0 values" },
    {
      what: "that are too high, repeated",
      runs: repeatedRun(3, 7, 2),
      most: 2,
      says: "the level 3, where 2 is the highest",
    },
    { what: "that are too high, packed", runs: packedRun([0, 3, 0, 0, 0, 0, 0], 2), most: 2, says: "the level 3" },
  ])("$what", ({ runs, most, due = 7, says }) => {
    expect(() => count(runs, most, due)).toThrow(says);
    expect(() => count(runs, most, due)).toThrow(RangeError);
  });
});
