import { expect, test } from "vitest";
import type { VectorLimits } from "#src/checks/profiles/vector-profile.js";
import { judge } from "#src/checks/verdicts/judge.js";
import { defaultChecks, type RunProfile } from "#src/checks/verdicts/run-profile.js";
import type { CheckResult, Verdict } from "#src/checks/verdicts/verdict.js";
import { columnNotes } from "#src/publish/compared-text.js";
import {
  type Columns,
  limitsNow,
  nightsBefore,
  normals,
  runProfile,
  vectorsProfile,
} from "../../support/run-profiles.js";
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

interface EmbeddingOptions {
  readonly seed?: number;
  readonly isOther?: boolean;
  readonly limits?: VectorLimits;
}

/** An embedding whose vectors have this cosine with one another on average: other texts each night, and a direction that they share. */
function embedding(
  cosine: number,
  rows: number,
  { seed = 1, isOther = false, limits = limitsNow }: EmbeddingOptions = {},
): Columns {
  const shared = normals(dimensions, { seed: isOther ? 1001 : 1000 });
  const texts = normals(rows * dimensions, { seed });
  const weight = Math.sqrt(cosine / (1 - cosine));
  const vectors = Array.from({ length: rows }, (_, row) =>
    shared.map((x, at) => weight * x + (texts[row * dimensions + at] as number)),
  );
  return { outputs: { embedding: vectorsProfile(vectors, limits) } };
}

/** The verdicts on 20 nights; `before`: the rows of each of the eight nights before. */
function verdictsOf(
  cosine: number,
  rows: number,
  { isOther = false, before = (_ago: number) => rows } = {},
): Verdict[] {
  return Array.from({ length: 20 }, (_, night) => {
    const earlier = nightsBefore(8, (ago) => embedding(cosine, before(ago), { seed: 100 * night + ago }));
    const run = runProfile(embedding(cosine, rows, { seed: 100 * night + 50, isOther }));
    return judge({ run, baseline: earlier }, defaultChecks);
  });
}

function levelsOf(...args: Parameters<typeof verdictsOf>): (string | undefined)[] {
  return verdictsOf(...args).map(({ results }) => results.find(({ check }) => check === "centroid")?.level);
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
    expect(new Set(levelsOf(cosine, rows))).toEqual(new Set(["pass"]));
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
    expect(new Set(levelsOf(cosine, rows, { isOther: true }))).toEqual(new Set(["hold"]));
  },
);

test.each([
  [0.03, 1],
  [0.03, 2],
  [0.03, 5],
])(
  "another model is held where vectors have a mean cosine of %d to one another, although an earlier night has only %d",
  (cosine, few) => {
    const before = (ago: number): number => (ago === 3 ? few : 400);
    expect(new Set(levelsOf(cosine, 400, { isOther: true, before }))).toEqual(new Set(["hold"]));
    expect(new Set(levelsOf(cosine, 400, { before }))).toEqual(new Set(["pass"]));
  },
);

function isWeekend(ago: number): boolean {
  return ago === 6 || ago === 7;
}

test("a night with few vectors is compared with earlier nights that have as few", () => {
  for (const verdict of verdictsOf(0.1, 10, { before: (ago) => (isWeekend(ago) ? 10 : 300) })) {
    expect(only(verdict, "centroid", "embedding").level).toBe("pass");
  }
  const away = Array.from({ length: 10 }, (_, night) => {
    const before = nightsBefore(8, (ago) =>
      embedding(0.1, isWeekend(ago) ? 10 : 300, { seed: 100 * night + ago, isOther: isWeekend(ago) }),
    );
    const run = runProfile(embedding(0.1, 10, { seed: 100 * night + 50, isOther: true }));
    return only(judge({ run, baseline: before }, defaultChecks), "centroid", "embedding").level;
  });
  expect(new Set(away)).toEqual(new Set(["pass"]));
});

test("the limit of directions without some of their dimensions is the usual one, until a run has all", () => {
  const some = { bins: 64, values: 8, nameBytes: 256, dimensions: 16 }; // an older version of this program
  const all = { ...some, dimensions } as const;
  const before = (older: number): RunProfile[] =>
    nightsBefore(8, (ago) => embedding(0.5, 50, { seed: ago, limits: ago > 8 - older ? some : all }));
  const resultOf = (older: number, limits: VectorLimits): CheckResult => {
    const run = runProfile(embedding(0.5, 50, { seed: 50, isOther: true, limits }));
    return only(judge({ run, baseline: before(older) }, defaultChecks), "centroid", "embedding");
  };
  expect(resultOf(8, all)).toMatchObject({ level: "hold", limit: 0.9, numbers: { variance: 0 } });
  expect(resultOf(0, some)).toMatchObject({ level: "hold", limit: 0.9, numbers: { variance: 0 } });
  const whole = Number(resultOf(0, all).numbers["variance"]);
  expect(whole).toBeGreaterThan(0.8);
  expect(whole).toBeLessThan(1.2);
  const mixed = Number(resultOf(7, all).numbers["variance"]);
  expect(mixed).toBeGreaterThan(0.7);
  expect(mixed).toBeLessThan(1.3);
});

test("vectors without a mean direction are not compared by it, and a note says so", () => {
  for (const verdict of verdictsOf(0, 30)) {
    expect(verdict.results.filter(({ check }) => check === "centroid")).toEqual([]);
    expect(columnNotes(verdict)).toEqual([
      "`centroid` does not compare embedding: its vectors are too few, or have too little direction in common",
    ]);
  }
  const older = { uncounted: [{ column: "embedding", checks: ["centroid"], run: "earlier" }] } as const;
  expect(columnNotes(older)).toEqual([
    "`centroid` does not compare embedding: an older version of this program profiled other dimensions of its vectors in the earlier runs",
  ]);
  for (const verdict of verdictsOf(0.3, 0, { before: () => 30 })) {
    expect(verdict.uncounted).toBeUndefined(); // no vectors: other checks tell
  }
});
