import type { ColumnProfile } from "../../profiles/column-profile.js";
import { binEdges } from "../../profiles/histogram.js";
import { alignHistograms, edgeText } from "./numbers.js";
import type { Aligned } from "./profiles.js";

type Vectors = Extract<ColumnProfile, { kind: "vectors" }>;

/**
 * Aligns the norms of vectors by pairs of neighbouring bins of their histograms, in the two ways in which bins can be paired.
 * Norms of normalised vectors differ from 1 in their last bits, and an edge of a bin is at 1: how many of them are below it
 * depends on rounding. In one of the two ways, the bins on both sides of an edge are a pair.
 */
export function alignNorms(before: Vectors, now: Vectors): readonly Aligned[] {
  const special = [
    { name: "NULL", before: before.nulls, now: now.nulls },
    { name: "not finite", before: before.vectors.notFinite, now: now.vectors.notFinite },
    { name: "zeros", before: before.vectors.zero, now: now.vectors.zero },
  ];
  const { keys, shift, ...bins } = alignHistograms(before.vectors.norms.histogram, now.vectors.norms.histogram);
  return [0, 1].map((offset) => {
    const pairs = [...new Set(Array.from(keys, (key) => (key + offset) >> 1))];
    const at = new Map(pairs.map((pair, index) => [pair, index]));
    const sums = (counts: Float64Array): Float64Array => {
      const found = new Float64Array(pairs.length);
      counts.forEach((count, index) => {
        const pair = at.get(((keys[index] as number) + offset) >> 1) as number;
        found[pair] = (found[pair] as number) + count;
      });
      return found;
    };
    const edge = (pair: number): string => edgeText(binEdges(Math.max(2 * pair - offset, 0), shift)[0]);
    return {
      before: sums(bins.before),
      now: sums(bins.now),
      name: (from, to) => `norm ${edge(pairs[from] as number)} to ${edge((pairs[to] as number) + 1)}`,
      special,
    };
  });
}

/** A column of vectors as one of their norms; others as they are. */
export function normsOf(profile: ColumnProfile): ColumnProfile {
  if (profile.kind !== "vectors") {
    return profile;
  }
  const { vectors, kind: _, ...counts } = profile;
  return { ...counts, kind: "numbers", numbers: vectors.norms };
}
