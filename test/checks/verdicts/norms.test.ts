import { expect, test } from "vitest";
import { judge } from "#src/checks/verdicts/judge.js";
import { psi } from "#src/checks/verdicts/psi.js";
import { defaultChecks } from "#src/checks/verdicts/run-profile.js";
import type { Verdict } from "#src/checks/verdicts/verdict.js";
import { findingText } from "#src/publish/finding-text.js";
import { moveText } from "#src/publish/feature-text.js";
import { fullLimits, nightsBefore, normals, runProfile, vectorsProfile } from "../../support/run-profiles.js";
import { only } from "../../support/verdicts.js";

type Vector = readonly number[];

function vectors(rows: number, dimensions: number, seed: number): Vector[] {
  const elements = normals(rows * dimensions, { mean: 1, seed });
  return Array.from({ length: rows }, (_, row) => elements.slice(row * dimensions, (row + 1) * dimensions));
}

function scaled(vector: Vector, by: number): Vector {
  return vector.map((element) => Math.fround(element * by));
}

function toNorm(vector: Vector, norm: number): Vector {
  return scaled(vector, norm / Math.hypot(...vector));
}

/** The verdict on a night, as an output and as a feature, after eight nights. */
function verdictOn(of: (nightsAgo: number) => readonly Vector[], limits = { ...fullLimits, bins: 64 }): Verdict {
  const night = (ago: number): Parameters<typeof runProfile>[0] => {
    const profile = vectorsProfile(of(ago), limits);
    return { outputs: { embedding: profile }, features: { image: profile } };
  };
  return judge({ run: runProfile(night(0)), baseline: nightsBefore(8, night) }, defaultChecks);
}

const failed = ({ results }: Verdict): string[] =>
  results.filter(({ level }) => level !== "pass").map(({ check, column, level }) => `${level} ${check} ${column}`);

/** Dimensions and rows. */
const sizes = [
  [8, 600],
  [384, 120],
  [768, 80],
] as const;

test("vectors times 1,000 hold, and a feature's line asks for the unit", () => {
  for (const [dimensions, rows] of sizes) {
    const verdict = verdictOn((ago) =>
      vectors(rows, dimensions, ago + 1).map((one) => scaled(one, ago === 0 ? 1000 : 1)),
    );
    expect(failed(verdict)).toEqual(["hold psi image", "hold psi embedding"]);
    const [image, embedding] = [only(verdict, "psi", "image"), only(verdict, "psi", "embedding")];
    expect(moveText(image)).toMatch(/^median norm \d+(\.\d+)?, usually \d.* \(×1,000: unit changed\?\)$/);
    expect(findingText(embedding, { dateOf: () => "yesterday" })).toMatch(
      /^PSI \d+(\.\d+)? of the norms against yesterday \(limit /,
    );
    for (const { bins = [], measured, numbers } of [image, embedding]) {
      expect(psi(bins)).toBe(measured);
      expect(bins.reduce((sum, { now }) => sum + now, 0)).toBe(numbers["rows"]);
      expect(bins.reduce((sum, { before }) => sum + before, 0)).toBe(numbers["rows_before"]);
    }
  }
});

test("vectors that are normalised all at once hold, and so do those that are no longer", () => {
  for (const [dimensions, rows] of sizes) {
    for (const isNow of [true, false]) {
      const verdict = verdictOn((ago) =>
        vectors(rows, dimensions, ago + 1).map((one) => ((ago === 0) === isNow ? toNorm(one, 1) : one)),
      );
      expect(failed(verdict)).toEqual(expect.arrayContaining(["hold psi embedding"]));
    }
  }
});

test("norms of normalised vectors pass on both sides of an edge of a bin", () => {
  for (const [dimensions, rows] of sizes) {
    for (const norm of [1, 8, 1.5]) {
      const verdict = verdictOn((ago) => {
        const all = vectors(rows, dimensions, ago + 1);
        // One row in 50 has another norm, so that bins are wider.
        return all.map((one, row) => (row % 50 === 0 ? one : toNorm(one, norm * (ago === 0 ? 1 + 2e-7 : 1 - 2e-7))));
      });
      expect(failed(verdict)).toEqual([]);
    }
  }
});

test("norms that vary alike from night to night pass", () => {
  for (const [dimensions, rows] of sizes) {
    expect(failed(verdictOn((ago) => vectors(rows, dimensions, ago + 1)))).toEqual([]);
  }
});
