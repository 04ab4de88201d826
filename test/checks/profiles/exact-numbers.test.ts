import { describe, expect, test } from "vitest";
import { profileColumn, profileLimits } from "#src/checks/profiles/column-profile.js";
import { type NumberProfile, standardDeviation } from "#src/checks/profiles/number-profile.js";
import type { ColumnType, FixedColumn } from "#src/columnar/types.js";
import type { Values } from "#src/columnar/values.js";

const full = profileLimits(1);
const fixed = (data: Values, valid?: Uint8Array): FixedColumn => ({ kind: "fixed", elementsPerValue: 1, data, valid });

function numbersOf(type: ColumnType, column: FixedColumn): NumberProfile {
  const profile = profileColumn({ type }, column, full);
  if (profile.kind !== "numbers") {
    throw new Error(`a column of ${profile.type} is profiled as ${profile.kind}`);
  }
  return profile.numbers;
}

describe("a profile of numbers that float64 rounds", () => {
  test.each([
    ["integers that are close together", "int64", BigInt64Array.of(1_000_000_000n, 1_000_000_001n), 0.5],
    ["integers that float64 does not tell apart", "int64", BigInt64Array.of(2n ** 53n, 2n ** 53n + 1n), 0.5],
    ["the largest numbers", "float64", Float64Array.of(-1.5e308, 1.5e308), 1.5e308],
    ["the smallest numbers", "float64", Float64Array.of(1e-300, 3e-300), 1e-300],
  ] as const)("a profile of numbers has the standard deviation of %s", (_, type, data, expected) => {
    const profile = profileColumn({ type }, fixed(data), full);
    expect(profile.kind === "numbers" && standardDeviation(profile.numbers) / expected).toBeCloseTo(1, 12);
  });

  test.each([
    ["so close together that the rounding of their squares hides it", (row: number) => 1e9 + row / 1000],
    ["whose squares are beyond float64", (row: number) => 1e200 * row],
  ])("a profile of many numbers has no standard deviation: %s", (_, of) => {
    const found = numbersOf("float64", fixed(Float64Array.from({ length: 1000 }, (__, row) => of(row))));
    expect(standardDeviation(found)).toBeNaN();
    expect(
      standardDeviation(numbersOf("float64", fixed(Float64Array.from({ length: 1000 }, (__, row) => row)))),
    ).toBeCloseTo(Math.sqrt((1000 ** 2 - 1) / 12));
  });

  test("a profile of integers of 64 bits names them, and has their extremes, without rounding", () => {
    const data = BigInt64Array.of(2n ** 53n, 2n ** 53n + 1n, -(2n ** 63n), 7n, 2n ** 53n + 1n, 2n ** 63n - 1n);
    const profile = profileColumn({ type: "int64" }, fixed(data, Uint8Array.of(1, 1, 1, 1, 1, 0)), full);
    expect(profile).toMatchObject({
      numbers: {
        wide: { min: -(2n ** 63n), max: 2n ** 53n + 1n },
        values: {
          counts: new Map([
            ["9007199254740992", 1],
            ["9007199254740993", 2],
            ["-9223372036854775808", 1],
            ["7", 1],
          ]),
        },
      },
    });
    const unsigned = profileColumn({ type: "uint64" }, fixed(BigUint64Array.of(2n ** 64n - 1n, 5n)), full);
    expect(unsigned).toMatchObject({ numbers: { wide: { min: 5n, max: 2n ** 64n - 1n } } });
  });
});
