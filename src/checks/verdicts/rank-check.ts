import { alignProfiles } from "./align/profiles.js";
import type { ComparedColumn } from "./column-checks.js";
import { leastPsiRows } from "./psi.js";
import { fewRows, poolOf } from "./psi-checks.js";
import type { CheckResult } from "./verdict.js";

/** Above this multiple of (1 / values before + 1 / values) a distance is beyond chance: two normal squares have 12 once in 400 nights. */
const chance = 12;

const formula = `location² + spread². location: the mean of sqrt(12) · u over the values now, less that over those before; spread: the same of sqrt(5) · (6 u² - 0.5). u is a value's rank among all of both (equal ones share their mean rank), divided by their number, less 0.5. Limit max(wanted, ${chance} · (1 / values before + 1 / values))`;

/**
 * How far the ranks of few numbers have moved from those of all earlier runs together, and how much farther apart they
 * are; warns. Two figures of which chance makes little find a shift that a PSI of a dozen bins cannot tell from chance.
 */
export function checkRanks({ column, now, earlier }: ComparedColumn, wanted: number): CheckResult[] {
  if (now.kind !== "numbers" || now.rows >= fewRows) {
    return [];
  }
  const { profile } = poolOf(earlier);
  const aligned = alignProfiles(profile, now);
  if (profile.kind !== "numbers" || aligned === undefined) {
    return [];
  }
  const [before, values] = [profile.numbers.finite, now.numbers.finite];
  if (Math.min(before, values) < leastPsiRows) {
    return [];
  }
  const { location, spread } = rankMoves(aligned.before, aligned.now);
  const distance = location ** 2 + spread ** 2;
  const limit = Math.max(wanted, chance * (1 / before + 1 / values));
  return [
    {
      check: "ranks",
      column,
      level: distance > limit ? "warn" : "pass",
      formula,
      measured: distance,
      limit,
      against: null,
      numbers: { location, spread, values, values_before: before, runs_together: earlier.length },
    },
  ];
}

/** The differences of the mean scores of ranks: two polynomials that have mean 0 and variance 1 over all ranks. */
function rankMoves(before: Float64Array, now: Float64Array): { readonly location: number; readonly spread: number } {
  const [was, is] = [totalOf(before), totalOf(now)];
  let [below, location, spread] = [0, 0, 0];
  for (let bin = 0; bin < now.length; bin += 1) {
    const [a, b] = [before[bin] as number, now[bin] as number];
    const u = (below + (a + b) / 2) / (was + is) - 0.5;
    const more = b / is - a / was;
    location += more * Math.sqrt(12) * u;
    spread += more * Math.sqrt(5) * (6 * u ** 2 - 0.5);
    below += a + b;
  }
  return { location, spread };
}

function totalOf(counts: Float64Array): number {
  return counts.reduce((sum, count) => sum + count, 0);
}
