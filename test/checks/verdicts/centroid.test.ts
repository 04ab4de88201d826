import { expect, test } from "vitest";
import { judge } from "#src/checks/verdicts/judge.js";
import { defaultChecks } from "#src/checks/verdicts/run-profile.js";
import type { Verdict } from "#src/checks/verdicts/verdict.js";
import { columnNotes } from "#src/publish/compared-text.js";
import { type Columns, nightsBefore, normals, runProfile, vectorsProfile } from "../../support/run-profiles.js";
import { only } from "../../support/verdicts.js";

const dimensions = 64;

interface EmbeddingOptions {
  readonly seed?: number;
  readonly isOther?: boolean;
}

/** An embedding whose vectors have this cosine with one another on average: other texts each night, and a direction that they share. */
function embedding(cosine: number, rows: number, { seed = 1, isOther = false }: EmbeddingOptions = {}): Columns {
  const shared = normals(dimensions, { seed: isOther ? 1001 : 1000 });
  const texts = normals(rows * dimensions, { seed });
  const weight = Math.sqrt(cosine / (1 - cosine));
  const vectors = Array.from({ length: rows }, (_, row) =>
    shared.map((x, at) => weight * x + (texts[row * dimensions + at] as number)),
  );
  return { outputs: { embedding: vectorsProfile(vectors) } };
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

test("vectors without a mean direction are not compared by it, and a note says so", () => {
  for (const verdict of verdictsOf(0, 30)) {
    expect(verdict.results.filter(({ check }) => check === "centroid")).toEqual([]);
    expect(columnNotes(verdict)).toEqual([
      "`centroid` does not compare embedding: its vectors are too few, or have too little direction in common",
    ]);
  }
  for (const verdict of verdictsOf(0.3, 0, { before: () => 30 })) {
    expect(verdict.uncounted).toBeUndefined(); // no vectors: other checks tell
  }
});
