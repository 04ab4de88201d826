import { expect, test } from "vitest";
import { judge } from "#src/checks/verdicts/judge.js";
import { defaultChecks } from "#src/checks/verdicts/run-profile.js";
import type { Verdict } from "#src/checks/verdicts/verdict.js";
import { type Columns, nightsBefore, normals, runProfile, vectorsProfile } from "../../support/run-profiles.js";
import { only } from "../../support/verdicts.js";

test("the direction of vectors only warns while some earlier runs cannot be compared, and says that none can", () => {
  const before = { bins: 64, values: 8, nameBytes: 256, dimensions: 8 };
  const limits = { ...before, version: 2 } as const;
  const vectors = Array.from({ length: 1000 }, (_, row) =>
    Array.from({ length: 32 }, (__, at) => Math.sin(at) + 0.01 * Math.sin(row)),
  );
  const away = vectors.map((vector) => vector.toReversed());
  const now = { outputs: { embedding: vectorsProfile(away, limits) } }; // 8 groups of 32 dimensions
  const older = { outputs: { embedding: vectorsProfile(vectors, before) } }; // the first 8
  const newer = { outputs: { embedding: vectorsProfile(vectors, limits) } };
  const judged = (comparable: number): Verdict =>
    judge(
      { run: runProfile(now), baseline: nightsBefore(8, (nightsAgo) => (nightsAgo <= comparable ? newer : older)) },
      defaultChecks,
    );
  expect(judged(0)).toMatchObject({ uncounted: [{ column: "embedding", checks: ["centroid"] }] });
  expect(judged(0).results.filter(({ check }) => check === "centroid")).toEqual([]);
  expect(only(judged(7), "centroid", "embedding")).toMatchObject({
    level: "warn",
    lowered: "only 7 of 8 earlier runs can be compared",
  });
  expect(only(judged(8), "centroid", "embedding").level).toBe("hold");
  expect(judged(8).uncounted).toBeUndefined();
});

const dimensions = 64;

/** An embedding whose vectors have this cosine with one another on average: other texts each night, and a direction that they share. */
function embedding(cosine: number, rows: number, { seed = 1, isOther = false } = {}): Columns {
  const shared = normals(dimensions, { seed: isOther ? 1001 : 1000 });
  const texts = normals(rows * dimensions, { seed });
  const weight = Math.sqrt(cosine / (1 - cosine));
  const vectors = Array.from({ length: rows }, (_, row) =>
    shared.map((x, at) => weight * x + (texts[row * dimensions + at] as number)),
  );
  return { outputs: { embedding: vectorsProfile(vectors) } };
}

function levelsOf(cosine: number, rows: number, isOther: boolean): (string | undefined)[] {
  return Array.from({ length: 20 }, (_, night) => {
    const before = nightsBefore(8, (ago) => embedding(cosine, rows, { seed: 100 * night + ago }));
    const run = runProfile(embedding(cosine, rows, { seed: 100 * night + 50, isOther }));
    const { results } = judge({ run, baseline: before }, defaultChecks);
    return results.find(({ check }) => check === "centroid")?.level;
  });
}

test.each([
  [0.7, 10],
  [0.3, 10],
  [0.3, 30],
  [0.3, 50],
  [0.1, 50],
  [0.1, 200],
])(
  "the mean direction of vectors with a mean cosine of %d to one another may differ by chance, in %d rows",
  (cosine, rows) => {
    expect(new Set(levelsOf(cosine, rows, false))).toEqual(new Set(["pass"]));
  },
);

test.each([
  [0.7, 10],
  [0.3, 30],
  [0.3, 50],
  [0.3, 200],
  [0.1, 50],
  [0.1, 200],
])(
  "another model is held by the mean direction of vectors with a mean cosine of %d to one another, in %d rows",
  (cosine, rows) => {
    expect(new Set(levelsOf(cosine, rows, true))).toEqual(new Set(["hold"]));
  },
);

test("vectors without a mean direction are not compared by it", () => {
  expect(new Set(levelsOf(0, 30, false))).toEqual(new Set([undefined]));
});
