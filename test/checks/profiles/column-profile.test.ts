import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  type ColumnProfile,
  type ColumnToProfile,
  mergeProfiles,
  profileColumn,
  profiledColumns,
  profileLimits,
} from "#src/checks/profiles/column-profile.js";
import { mean, standardDeviation } from "#src/checks/profiles/number-profile.js";
import { parseProfile, profileJson } from "#src/checks/profiles/profile-json.js";
import { valueList } from "#src/checks/profiles/outside-values.js";
import { repeatedShare, type VectorLimits } from "#src/checks/profiles/vector-profile.js";
import { sliceColumn } from "#src/columnar/column-rows.js";
import type { Column, ColumnType, FixedColumn } from "#src/columnar/types.js";
import type { Values } from "#src/columnar/values.js";
import { listColumn, textColumn } from "../../support/batches.js";
import { randomOf } from "../../support/random.js";

const full = profileLimits(1);
const fixed = (data: Values, valid?: Uint8Array, elementsPerValue: 1 | 2 = 1): FixedColumn => ({
  kind: "fixed",
  elementsPerValue,
  data,
  valid,
});
const shown = (profile: ColumnProfile): string => JSON.stringify(profileJson(profile));

function numbersOf(type: ColumnType, column: Column) {
  const profile = profileColumn({ type }, column, full);
  if (profile.kind !== "numbers") {
    throw new Error(`a column of ${profile.type} is profiled as ${profile.kind}`);
  }
  return { ...profile.numbers, nulls: profile.nulls, rows: profile.rows };
}

function valuesOf(column: Column) {
  const profile = profileColumn({ type: "utf8" }, column, full);
  return profile.kind === "values" ? profile.values : undefined;
}

function vectors(...lists: readonly (readonly number[])[]) {
  const profile = profileColumn({ type: { kind: "list", element: "float32" } }, listColumn("float32", lists), full);
  if (profile.kind !== "vectors") {
    throw new Error(`a column of ${profile.type} is profiled as ${profile.kind}`);
  }
  return profile.vectors;
}

const anyDouble = fc.oneof(
  fc.double(),
  fc.constantFrom(0, -0, 1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 5e-324),
);
const texts = fc.oneof(fc.constantFrom("a", "b", "c"), fc.string({ maxLength: 90, unit: "grapheme" }));

const integers = fc.oneof(
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  fc.bigInt({ min: 2n ** 53n - 2n, max: 2n ** 53n + 3n }),
  fc.bigInt({ min: -3n, max: 3n }),
);

/** Columns of all kinds of values, with NULLs. */
const columns: fc.Arbitrary<{ about: ColumnToProfile; column: Column }> = fc.oneof(
  fc.array(fc.option(anyDouble), { maxLength: 300 }).map((values) => ({
    about: { type: "float64" } as const,
    column: fixed(
      Float64Array.from(values, (value) => value ?? 7),
      validOf(values),
    ),
  })),
  fc.array(fc.option(fc.float()), { maxLength: 300 }).map((values) => ({
    about: { type: "float32" } as const,
    column: fixed(
      Float32Array.from(values, (value) => value ?? 7),
      validOf(values),
    ),
  })),
  fc.array(fc.option(integers), { maxLength: 100 }).map((values) => ({
    about: { type: "int64", list: valueList(["7", String(2n ** 53n)]) } as const,
    column: fixed(
      BigInt64Array.from(values, (value) => value ?? 7n),
      validOf(values),
    ),
  })),
  fc.array(fc.option(texts), { maxLength: 100 }).map((values) => ({
    about: { type: "utf8", list: valueList(["a", "b"]) } as const,
    column: textColumn(values),
  })),
  fc.array(fc.option(fc.boolean()), { maxLength: 100 }).map((values) => ({
    about: { type: "bool" } as const,
    column: fixed(
      Uint8Array.from(values, (value) => (value === true ? 1 : 0)),
      validOf(values),
    ),
  })),
  fc.array(fc.option(fc.array(fc.option(fc.float()), { maxLength: 4 })), { maxLength: 60 }).map((lists) => ({
    about: { type: { kind: "list", element: "float32" } } as const,
    column: listColumn("float32", lists),
  })),
);

function validOf(values: readonly unknown[]): Uint8Array | undefined {
  return values.includes(null) ? Uint8Array.from(values, (value) => (value === null ? 0 : 1)) : undefined;
}

/** Few enough for samples to go beyond them. */
const tight: VectorLimits = { bins: 12, values: 8, nameBytes: 200, dimensions: 3 };
const anyLimits = fc.constantFrom<VectorLimits>(full, tight);

test("a profile is the same for any cut of its rows into spans, merged in any order", () => {
  fc.assert(
    fc.property(
      columns,
      fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 5 }),
      fc.array(fc.nat(), { minLength: 7, maxLength: 7 }),
      anyLimits,
      ({ about, column }, cuts, order, limits) => {
        const whole = profileColumn(about, column, limits);
        const ends = [...cuts.map((cut) => Math.floor(cut * whole.rows)), whole.rows].toSorted((a, b) => a - b);
        const spans = ends.map((end, index) =>
          profileColumn(about, sliceColumn(column, ends[index - 1] ?? 0, end), limits),
        );
        let left = spans;
        for (const pick of order) {
          if (left.length > 1) {
            const at = pick % (left.length - 1);
            const [one, other] = [left[at], left.at(-1)] as [ColumnProfile, ColumnProfile];
            left = [...left.slice(0, at), ...left.slice(at + 1, -1), mergeProfiles(one, other, limits)];
          }
        }
        expect(left.map(shown)).toEqual([shown(whole)]);
      },
    ),
    { numRuns: 500 },
  );
});

test("a profile comes back from its JSON as it was", () => {
  fc.assert(
    fc.property(columns, anyLimits, ({ about, column }, limits) => {
      const profile = profileColumn(about, column, limits);
      expect(parseProfile(JSON.parse(shown(profile)) as ReturnType<typeof profileJson>)).toEqual(profile);
    }),
  );
});

describe("a profile of numbers", () => {
  test("a profile of numbers counts NULLs, NaN, infinities and finite values separately", () => {
    const data = Float32Array.of(1, Number.NaN, Number.POSITIVE_INFINITY, 9, Number.NEGATIVE_INFINITY, -3, Number.NaN);
    const valid = Uint8Array.of(1, 1, 1, 0, 1, 1, 1);
    expect(numbersOf("float32", fixed(data, valid))).toMatchObject({
      rows: 7,
      nulls: 1,
      nan: 2,
      positiveInfinite: 1,
      negativeInfinite: 1,
      finite: 2,
      min: -3,
      max: 1,
    });
  });

  test("a profile of numbers has the mean and the standard deviation of its values", () => {
    const found = numbersOf("float64", fixed(Float64Array.of(1_000_001, 1_000_002, 1_000_003)));
    expect([mean(found), standardDeviation(found)]).toEqual([1_000_002, Math.sqrt(2 / 3)]);
  });

  test("a profile of numbers reads decimals, integers, dates and timestamps as numbers", () => {
    const decimal = { kind: "decimal", precision: 9, scale: 2 } as const;
    const wide = { kind: "decimal", precision: 38, scale: 1 } as const;
    expect(numbersOf(decimal, fixed(Int32Array.of(-150, 225)))).toMatchObject({ min: -1.5, max: 2.25 });
    const long = { kind: "decimal", precision: 18, scale: 3 } as const;
    expect(numbersOf(long, fixed(BigInt64Array.of(123_456_789_012_345_678n)))).toMatchObject({
      max: Number("123456789012345.678"),
    });
    const words = fixed(BigUint64Array.of(2n ** 64n - 15n, 2n ** 64n - 1n, 20n, 0n), undefined, 2);
    expect(numbersOf(wide, words)).toMatchObject({ rows: 2, min: -1.5, max: 2 });
    expect(numbersOf("int64", fixed(BigInt64Array.of(-(2n ** 40n), 5n)))).toMatchObject({ min: -(2 ** 40), max: 5 });
    expect(numbersOf("uint64", fixed(BigUint64Array.of(2n ** 64n - 1n)))).toMatchObject({ max: 2 ** 64 });
    expect(numbersOf("date32", fixed(Int32Array.of(-1, 20_000)))).toMatchObject({ min: -1, max: 20_000 });
    expect(numbersOf("timestamp[us]", fixed(BigInt64Array.of(-1n)))).toMatchObject({ max: -1 });
    expect(numbersOf("uint8", fixed(Uint8Array.of(255)))).toMatchObject({ max: 255 });
  });

  test("a profile of numbers names its values while they are few, and otherwise says only that they are many", () => {
    const few = numbersOf("int64", fixed(BigInt64Array.from({ length: 1000 }, (_, row) => BigInt(row % 3))));
    expect(few.values).toEqual({
      kind: "few",
      counts: new Map([
        ["0", 334],
        ["1", 333],
        ["2", 333],
      ]),
    });
    const many = numbersOf("int64", fixed(BigInt64Array.from({ length: 1000 }, (_, row) => BigInt(row % 257))));
    expect(many.values).toEqual({ kind: "many", hashed: undefined });
  });

  test("a profile of float32 equals that of the same numbers as float64, zeros, subnormal and infinite numbers included", () => {
    fc.assert(
      fc.property(fc.array(fc.oneof(fc.float(), fc.constantFrom(0, -0, 0.1, 1e-40)), { maxLength: 50 }), (values) => {
        const data = Float32Array.from(values);
        expect(numbersOf("float32", fixed(data))).toEqual(numbersOf("float64", fixed(Float64Array.from(data))));
      }),
      { numRuns: 500 },
    );
  });

  test("a profile of numbers describes all rows, even if they are more than a block holds", () => {
    const random = randomOf(3);
    const data = Float64Array.from({ length: 10_000 }, random);
    const found = numbersOf("float64", fixed(data));
    expect([found.finite, found.min, found.max]).toEqual([10_000, Math.min(...data), Math.max(...data)]);
    expect(mean(found)).toBeCloseTo(data.reduce((sum, value) => sum + value, 0) / 10_000, 12);
  });
});

describe("a profile of texts", () => {
  test("a profile of texts distinguishes long texts that begin alike", () => {
    const begin = "é".repeat(40);
    const found = valuesOf(textColumn([`${begin}a`, `${begin}b`, `${begin}a`]));
    expect(found?.kind === "few" && [...found.counts.values()].toSorted((a, b) => a - b)).toEqual([1, 2]);
  });

  test("a profile of texts counts many different texts by their hash", () => {
    const found = valuesOf(textColumn(Array.from({ length: 1000 }, (_, row) => `text ${row}`)));
    expect(found?.kind === "many" && found.hashed?.reduce((sum, count) => sum + count)).toBe(1000);
    expect(found?.kind === "many" && Math.max(...(found.hashed ?? []))).toBeLessThan(20);
  });

  test("a profile of texts counts few different texts by their hash if their names together are too long", () => {
    const column = textColumn(["a".repeat(20), "b".repeat(20)]);
    const kindWith = (nameBytes: number): unknown => {
      const profile = profileColumn({ type: "utf8" }, column, { ...full, nameBytes });
      return profile.kind === "values" && profile.values.kind;
    };
    expect([kindWith(72), kindWith(71)]).toEqual(["few", "many"]);
  });

  test("a profile of lists of texts counts their elements", () => {
    const column: Column = {
      kind: "list",
      offsets: Uint32Array.of(0, 2, 3),
      child: textColumn(["a", "b", "a"]),
      valid: undefined,
    };
    const profile = profileColumn({ type: { kind: "list", element: "utf8" } }, column, full);
    expect(profileJson(profile)).toMatchObject({ rows: 2, values: { a: 2, b: 1 } });
  });
});

describe("a profile of vectors", () => {
  test("a profile of vectors counts vectors that are zero or not finite, and has the norms of the others", () => {
    const found = vectors([3, 4], [0, 0], [Number.NaN, 1], [6, 8, 0]);
    expect(found).toMatchObject({ minDimension: 2, maxDimension: 3, zero: 1, notFinite: 1 });
    expect(found.norms).toMatchObject({ finite: 2, min: 5, max: 10 });
  });

  test("a profile of vectors tells which share of the vectors repeat one another", () => {
    const random = randomOf(5);
    const different = Array.from({ length: 4000 }, () => [random(), random()]);
    expect(repeatedShare(vectors(...different))).toBe(0);
    const stuck = different.map((vector, row) => (row % 4 === 0 ? [0.5, 0.5] : vector));
    expect(repeatedShare(vectors(...stuck))).toBeCloseTo(0.25, 1);
  });
});

test("a profile of a key tells rows and NULLs, and no value", () => {
  const profile = profileColumn({ type: "utf8", isKey: true }, textColumn(["secret", null]), full);
  expect(profile).toEqual({ kind: "rows", type: "utf8", rows: 2, nulls: 1 });
});

test.each([1, 3, 8, profiledColumns])("the JSON of the profiles of %i columns is at most 64 KiB", (count) => {
  const rows = 60_000;
  const random = randomOf(1);
  const limits = profileLimits(count);
  const wild = fixed(Float64Array.from({ length: rows }, () => (random() - 0.5) * 10 ** (random() * 600 - 300)));
  const names = textColumn(
    Array.from({ length: rows }, () => `${"é".repeat(random() * 30)} ${Math.floor(random() * limits.values)}`),
  );
  const many = textColumn(Array.from({ length: rows }, (_, row) => `text ${row}`));
  const lists = listColumn(
    "float32",
    Array.from({ length: 200 }, () => Array.from({ length: 1100 }, () => random() - 0.5)),
  );
  const worst = [
    profileColumn({ type: "float64" }, wild, limits),
    profileColumn({ type: "utf8" }, names, limits),
    profileColumn({ type: "utf8" }, many, limits),
    profileColumn({ type: { kind: "list", element: "float32" } }, lists, limits),
  ].map((profile) => shown(profile).length);
  expect(Math.max(...worst) * count).toBeLessThanOrEqual(64 * 1024);
});
