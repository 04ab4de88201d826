import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  type ColumnProfile,
  type ColumnToProfile,
  mergeProfiles,
  profileColumn,
} from "#src/checks/profiles/column-profile.js";
import { valueList } from "#src/checks/profiles/outside-values.js";
import { parseProfile, type ProfileJson, profileJson } from "#src/checks/profiles/profile-json.js";
import { sliceColumn } from "#src/columnar/column-rows.js";
import type { Column } from "#src/columnar/types.js";
import { textColumn } from "../../support/batches.js";
import { fullLimits, textsProfile } from "../../support/run-profiles.js";

/** Few enough for some spans to count their values one by one, and for others not to. */
const limits = { ...fullLimits, values: 8, nameBytes: 200 };

function throughJson(profile: ColumnProfile): ColumnProfile {
  return parseProfile(JSON.parse(JSON.stringify(profileJson(profile))) as ProfileJson);
}

/** Texts of 1 to 71 bytes, some of which JSON escapes: those of more than 64 bytes are named by their beginning. */
const texts = fc
  .tuple(
    fc.constantFrom("a", "b", "c", "d", "e", "é", "é"),
    fc.oneof(fc.nat(6), fc.nat(70)),
    fc.constantFrom("x", "x", "x", '"'),
  )
  .map(([first, more, last]) => first + last.repeat(more));
const integers = fc
  .tuple(fc.constantFrom(1, 2, 3, 4, -5), fc.nat(17))
  .map(([digit, zeros]) => BigInt(digit) * 10n ** BigInt(zeros));

const columns: fc.Arbitrary<{ about: ColumnToProfile; column: Column }> = fc.oneof(
  fc.array(texts, { maxLength: 60 }).map((values) => ({
    about: { type: "utf8", list: valueList(["ax", "b"]) } as const,
    column: textColumn(values),
  })),
  fc.array(integers, { maxLength: 100 }).map((values) => ({
    about: { type: "int64", list: valueList(["10", "200"]) } as const,
    column: { kind: "fixed", elementsPerValue: 1, data: BigInt64Array.from(values), valid: undefined } as const,
  })),
);

describe("the examples of values that are not in a list", () => {
  test("examples of values outside a list do not depend on how rows are divided into spans or merged, and survive JSON", () => {
    fc.assert(
      fc.property(
        columns,
        fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 5 }),
        fc.array(fc.tuple(fc.nat(), fc.nat(), fc.boolean()), { minLength: 6, maxLength: 6 }),
        ({ about, column }, cuts, order) => {
          const whole = profileColumn(about, column, limits);
          const ends = [...cuts.map((cut) => Math.floor(cut * whole.rows)), whole.rows].toSorted((a, b) => a - b);
          const left = ends.map((end, index) =>
            profileColumn(about, sliceColumn(column, ends[index - 1] ?? 0, end), limits),
          );
          for (const [first, second, isStored] of order) {
            const [one] = left.splice(first % left.length, 1) as [ColumnProfile];
            const [other] = left.splice(second % Math.max(left.length, 1), 1);
            const merged = other === undefined ? one : mergeProfiles(one, other, limits);
            left.push(isStored ? throughJson(merged) : merged);
          }
          expect(left.map(({ outside }) => outside)).toEqual([whole.outside]);
          expect(left.map(profileJson)).toEqual([profileJson(whole)]);
        },
      ),
      { numRuns: 2000 },
    );
  });

  test("examples of values outside a list end before the first name that did not fit in one of the spans", () => {
    const list = valueList(["ok"]);
    const of = (...names: readonly string[]): ColumnProfile =>
      textsProfile(Object.fromEntries(names.map((name) => [name, 1])), limits, list);
    const first = ["Argentina", "Australia", "Austria", "Belgium", "Brazil", "Bulgaria"];
    const one = of(...first, "Canadian Territories", "Chile");
    const merged = mergeProfiles(one, of("Chile", "China"), limits);
    expect(merged.outside?.rows).toBe(10);
    expect([...(merged.outside?.examples ?? [])]).toEqual(first.map((name) => [name, 1]));
  });
});
