import { expect, test } from "vitest";
import { judge } from "#src/checks/verdicts/judge.js";
import { defaultChecks } from "#src/checks/verdicts/run-profile.js";
import type { Verdict } from "#src/checks/verdicts/verdict.js";
import { nightsBefore, runProfile, vectorsProfile } from "../../support/run-profiles.js";
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
