import type { CheckResult } from "./verdict.js";

/** Characters of JSON of the histograms of results that pass. docs/decisions/checks.md says what was measured. */
const passingBinsChars = 64 * 1024;

/**
 * Leaves out histograms of results that pass, where all of them would exceed the size limit: those stay whose measured value
 * is closest to its limit.
 */
export function boundBins(results: readonly CheckResult[]): CheckResult[] {
  let left = passingBinsChars;
  const dropped = new Set<CheckResult>();
  const passing = results.filter(({ level, bins }) => level === "pass" && bins !== undefined);
  for (const result of passing.toSorted((one, other) => excess(other) - excess(one))) {
    left -= JSON.stringify(result.bins).length;
    if (left < 0) {
      dropped.add(result);
    }
  }
  return results.map((result) => {
    const { bins: _, ...others } = result;
    return dropped.has(result) ? others : result;
  });
}

function excess({ measured, limit }: CheckResult): number {
  return Number(measured) / Number(limit);
}
