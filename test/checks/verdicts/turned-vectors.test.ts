import { expect, test } from "vitest";
import { judge } from "#src/checks/verdicts/judge.js";
import { defaultChecks } from "#src/checks/verdicts/run-profile.js";
import { nightsBefore, normals, numbersProfile, runProfile, vectorsProfile } from "../../support/run-profiles.js";
import { told } from "../../support/verdicts.js";

const scores = normals(2000, { seed: 1 });
const vectors = scores.map((score) => [1 + 0.1 * score, 2, 3]);
const negative = (vector: number[]): number[] => vector.map((element) => -element);

function levelsWith({ areTurned }: { areTurned: boolean }): string[] {
  const usual = { outputs: { score: numbersProfile(scores) }, features: { embedding: vectorsProfile(vectors) } };
  const now = {
    outputs: { score: numbersProfile(scores.map((score) => 5 - score)) },
    features: { embedding: vectorsProfile(areTurned ? vectors.map(negative) : vectors) },
  };
  return told(judge({ run: runProfile(now), baseline: nightsBefore(8, () => usual) }, defaultChecks));
}

test("an output that moves with vectors of another direction is not called unexplained", () => {
  expect(levelsWith({ areTurned: false })).toContain("unexplained score warn");
  const turned = levelsWith({ areTurned: true });
  expect(turned).toContain("centroid embedding hold");
  expect(turned).toContain("psi score hold");
  expect(turned.filter((level) => level.includes("unexplained"))).toEqual([]);
});
