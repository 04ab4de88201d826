import { describe, expect, test } from "vitest";
import {
  type ColumnProfile,
  mergeProfiles,
  profileColumn,
  profileLimits,
} from "#src/checks/profiles/column-profile.js";
import { centroidAngle } from "#src/checks/profiles/vector-directions.js";
import type { VectorProfile } from "#src/checks/profiles/vector-profile.js";
import type { ElementType } from "#src/columnar/values.js";
import { listColumn } from "../../support/batches.js";
import { normals } from "../../support/run-profiles.js";

const full = profileLimits(1);

function vectors(
  lists: readonly (readonly number[])[],
  limits = full,
  element: ElementType = "float32",
): VectorProfile {
  return vectorsIn(profileColumn({ type: { kind: "list", element } }, listColumn(element, lists), limits));
}

function vectorsIn(profile: ColumnProfile): VectorProfile {
  if (profile.kind !== "vectors") {
    throw new Error(`a column of ${profile.type} is profiled as ${profile.kind}`);
  }
  return profile.vectors;
}

const cosine = (one: VectorProfile, other: VectorProfile): number =>
  centroidAngle(one.directions, other.directions).cosine;

const product = (x: readonly number[], y: readonly number[]): number =>
  x.reduce((sum, value, index) => sum + value * (y[index] as number), 0);

/** The cosine of the angle between the sums of directions, as plain arithmetic has it. */
function exactCosine(one: readonly (readonly number[])[], other: readonly (readonly number[])[]): number {
  const [a, b] = [one, other].map((lists) => {
    const sums = (lists[0] ?? []).map(() => 0);
    for (const list of lists) {
      const norm = Math.hypot(...list);
      list.forEach((value, index) => {
        sums[index] = (sums[index] as number) + value / norm;
      });
    }
    return sums;
  }) as [number[], number[]];
  return product(a, b) / Math.sqrt(product(a, a) * product(b, b));
}

/** Vectors around one direction. `flipFrom`: dimensions from this one on have the opposite sign. */
function embeddings(dimension: number, { seed = 1, flipFrom = dimension, noise = 0.3 } = {}): number[][] {
  const base = normals(dimension, { seed: 99, deviation: 0.5 });
  return Array.from({ length: 60 }, (_, row) =>
    normals(dimension, { seed: seed * 1000 + row, deviation: noise }).map(
      (value, index) => (value + (base[index] as number)) * (index >= flipFrom ? -1 : 1),
    ),
  );
}

describe("the angle between the centroids of two profiles of vectors", () => {
  test("the angle between two centroids says how far they point in the same direction", () => {
    const [right, up, both] = [
      vectors([
        [1, 0],
        [9, 0],
      ]),
      vectors([[0, 2]]),
      vectors([
        [1, 0],
        [0, 1],
      ]),
    ];
    expect(cosine(right, right)).toBeCloseTo(1);
    expect(cosine(right, up)).toBeCloseTo(0);
    expect(cosine(right, both)).toBeCloseTo(Math.SQRT1_2, 4);
    expect(cosine(right, vectors([[0, 0]]))).toBeNaN();
  });

  test.each([
    ["all dimensions fit", 1024, 4],
    ["dimensions are put together in groups", 256, 1.3],
    ["dimensions are put together in few groups", 64, 0.8],
  ])("the angle between two centroids is that of all dimensions if %s", (_, dimensions, digits) => {
    const [one, same, flipped] = [embeddings(768), embeddings(768, { seed: 2 }), embeddings(768, { flipFrom: 214 })];
    const of = (lists: readonly (readonly number[])[]): VectorProfile => vectors(lists, { ...full, dimensions });
    expect(of(one).directions.sums.length).toBe(Math.min(dimensions, 768));
    // Of nearly equal directions, groups tell the cosine nearly exactly.
    expect(Math.abs(cosine(of(one), of(same)) - exactCosine(one, same))).toBeLessThan(0.002);
    expect(cosine(of(one), of(flipped))).toBeCloseTo(exactCosine(one, flipped), digits);
    expect(exactCosine(one, flipped)).toBeLessThan(-0.3);
  });

  test("the angle between two centroids can be computed from dimensions and groups, and from different numbers of groups", () => {
    const lists = embeddings(300);
    const [all, many, few] = [512, 128, 64].map((dimensions) => vectors(lists, { ...full, dimensions })) as [
      VectorProfile,
      VectorProfile,
      VectorProfile,
    ];
    expect([cosine(all, many), cosine(all, few), cosine(few, many)]).toEqual(
      [1, 1, 1].map((one) => expect.closeTo(one, 12)),
    );
  });

  test("the angle between two centroids does not depend on the order of merging", () => {
    const lists = [...embeddings(40), ...embeddings(300), ...embeddings(200)];
    const limits = { ...full, dimensions: 100 };
    const type = { kind: "list", element: "float32" } as const;
    const spans = [0, 60, 120].map((from) =>
      profileColumn({ type }, listColumn("float32", lists.slice(from, from + 60)), limits),
    ) as [ColumnProfile, ColumnProfile, ColumnProfile];
    const whole = vectors(lists, limits);
    for (const [a, b, c] of [
      [0, 1, 2],
      [2, 0, 1],
      [1, 2, 0],
    ] as const) {
      const merged = mergeProfiles(mergeProfiles(spans[a], spans[b], limits), spans[c], limits);
      expect(vectorsIn(merged).directions).toEqual(whole.directions);
    }
  });
});

describe("vectors whose squares float64 does not have", () => {
  const lists = [
    [1e200, 1e200, 1e200],
    [1e-200, 1e-200, 0],
    [5e-324, 0, 0],
    [1.7e308, -1.7e308, 0],
  ];

  test("vectors whose squares float64 cannot hold have a norm and a direction", () => {
    const found = vectors(lists, full, "float64");
    expect(found).toMatchObject({ zero: 0, notFinite: 0, norms: { finite: 3, positiveInfinite: 1 } });
    expect(found.norms.max).toBeCloseTo(Math.sqrt(3) * 1e200, -190);
    const plain = [
      [1, 1, 1],
      [1, 1, 0],
      [1, 0, 0],
      [1, -1, 0],
    ];
    expect(found.directions).toEqual(vectors(plain).directions);
  });

  test("vectors of zeros, NaN or infinities have no norm and no direction", () => {
    const found = vectors(
      [
        [0, -0],
        [Number.NaN, 1e-300],
        [Number.POSITIVE_INFINITY, 1],
        [1e300, Number.NaN],
      ],
      full,
      "float64",
    );
    expect(found).toMatchObject({ zero: 1, notFinite: 3, norms: { finite: 0 } });
  });
});
