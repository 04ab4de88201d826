import { expect, test } from "vitest";
import {
  aggregateBins,
  type AggregateName,
  type AggregateProfile,
  aggregatesJson,
  aggregateValue,
  mergeAggregates,
  parseAggregates,
} from "#src/checks/profile/profile.js";
import { type ColumnProfile, profileColumn } from "#src/checks/profile/column.js";

const { NaN: nan, POSITIVE_INFINITY: inf, NEGATIVE_INFINITY: minusInf } = Number;

function profileOf(values: readonly (number | null)[]): ColumnProfile {
  const data = new Float64Array(values.map((value) => value ?? 0));
  const valid = Uint8Array.from(values, (value) => (value === null ? 0 : 1));
  return profileColumn(
    { name: "", type: "float64" },
    { kind: "fixed", elementsPerValue: 1, data, valid },
    aggregateBins,
  );
}

const names: readonly AggregateName[] = ["count", "sum", "avg", "min", "max"];
const valuesOf = (profile: AggregateProfile | undefined): (number | null | string)[] =>
  profile === undefined || "error" in profile ? [] : names.map((name) => aggregateValue(name, profile));

test.each([
  [
    [1, 2, null, 6],
    [3, 9, 3, 1, 6],
  ],
  [
    [null, null],
    [0, null, null, null, null],
  ],
  [[], [0, null, null, null, null]],
  [
    [1, nan],
    [2, nan, nan, nan, nan],
  ],
  [
    [1, inf],
    [2, inf, inf, 1, inf],
  ],
  [
    [minusInf, 1],
    [2, minusInf, minusInf, minusInf, 1],
  ],
  [
    [minusInf, inf],
    [2, nan, nan, minusInf, inf],
  ],
  [
    [1e300, 1, -1e300],
    [3, 1, 1 / 3, -1e300, 1e300],
  ],
])("aggregates of %j are those of SQL, with exact sums: %j", (values, expected) => {
  expect(valuesOf(profileOf(values))).toEqual(expected);
});

test("aggregates do not depend on the order in which spans are merged, and survive JSON", () => {
  const values = Array.from({ length: 60 }, (_, index) => (index % 7 === 0 ? null : 10 ** (index % 31) / 3 - index));
  const whole = valuesOf(profileOf(values));
  for (const size of [1, 7, 25]) {
    const cuts = Array.from({ length: Math.ceil(60 / size) }, (_, cut) => values.slice(cut * size, (cut + 1) * size));
    const profiles = cuts.map((rows) => parseAggregates(JSON.parse(JSON.stringify(aggregatesJson([profileOf(rows)])))));
    const merged = valuesOf(profiles.reduce(mergeAggregates)[0]);
    expect(valuesOf(profiles.toReversed().reduce(mergeAggregates)[0])).toEqual(merged);
    expect(merged.map((value) => Number(value).toPrecision(14))).toEqual(
      whole.map((value) => Number(value).toPrecision(14)),
    );
  }
});

test("an expression that fails in one span fails in the run", () => {
  const failed = parseAggregates(aggregatesJson([{ error: "it fails" }]));
  expect(mergeAggregates([profileOf([1])], failed)).toEqual([{ error: "it fails" }]);
  expect(mergeAggregates(failed, [profileOf([1])])).toEqual([{ error: "it fails" }]);
  const again = [{ error: "it fails again" }];
  expect([mergeAggregates(failed, again), mergeAggregates(again, failed)]).toEqual([failed, failed]);
});
