import { ownShare } from "./align/numbers.js";
import type { Aligned } from "./align/profiles.js";

/** One bin of the two histograms that a PSI was computed from. */
export interface PsiBin extends Counts {
  readonly values: string;
}

interface Counts {
  readonly before: number;
  readonly now: number;
}

/**
 * A bin of entries [from, to], without those that have bins of their own; or a special one: its index below zero, counted
 * from -1.
 */
export interface EntryBin extends Counts {
  readonly from: number;
  readonly to: number;
  /** Whether it is of one entry that has a bin of its own. */
  readonly isOwn?: true;
}

const parts = 10;
/** Added to each bin, so that none is empty. */
const smoothing = 0.5;
/** Standard deviations above what chance makes of a PSI; of one against several runs together, more. */
export const psiChance = { one: 3.5, pooled: 4 };
/** With fewer rows on either side no PSI is computed. */
export const leastPsiRows = 50;

/**
 * The population stability index, Σ (p - q) · ln(p / q) over the bins of two histograms, where p and q are a bin's
 * shares now and before, each count with 0.5 more. See Siddiqi, "Credit Risk Scorecards" (2006).
 */
export function psi(bins: readonly Counts[]): number {
  let [before, now] = [0, 0];
  for (const bin of bins) {
    before += bin.before + smoothing;
    now += bin.now + smoothing;
  }
  let sum = 0;
  for (const bin of bins) {
    const [q, p] = [(bin.before + smoothing) / before, (bin.now + smoothing) / now];
    sum += (p - q) * Math.log(p / q);
  }
  return sum;
}

/**
 * The limit for so many rows before and now: the wanted one, or what chance may make. Of rows that come from one
 * distribution, a PSI of k bins is (1 / before + 1 / now) times a chi-squared variable of k - 1 degrees of freedom, whose
 * mean is k - 1 and whose variance twice that. Infinite: there are too few rows.
 */
export function psiLimit(wanted: number, bins: number, before: number, now: number, chance = psiChance.one): number {
  const freedom = Math.max(bins - 1, 1);
  const noise = (freedom + chance * Math.sqrt(2 * freedom)) * (1 / before + 1 / now);
  return Math.min(before, now) < leastPsiRows ? Number.POSITIVE_INFINITY : Math.max(wanted, noise);
}

/**
 * Bins by the deciles of what was before (equal ones merged, both ends open), but for values of at least 5 % of either
 * side, NULL, NaN and infinite ones, which have bins of their own. Those that are empty on both sides are left out.
 */
export function psiBins({ before, now, special }: Aligned): EntryBin[] {
  const rows = (counts: Float64Array, side: "before" | "now"): number =>
    special.reduce((sum, entry) => sum + entry[side], total(counts));
  const isOwn = ownEntries(before, now, ownShare * rows(before, "before"), ownShare * rows(now, "now"));
  const bins: EntryBin[] = [];
  const put = (bin: EntryBin): void => {
    if (bin.before + bin.now > 0) {
      bins.push(bin);
    }
  };
  for (const [index, entry] of special.entries()) {
    put({ from: -1 - index, to: -1 - index, before: entry.before, now: entry.now });
  }
  const step = total(before) / parts;
  let [cumulated, part] = [0, 1];
  let open = { from: 0, before: 0, now: 0 };
  for (let index = 0; index < before.length; index += 1) {
    const [was, is] = [before[index] as number, now[index] as number];
    if (isOwn[index] === 1) {
      put({ from: index, to: index, before: was, now: is, isOwn: true });
    } else {
      open = { from: open.from, before: open.before + was, now: open.now + is };
    }
    cumulated += was;
    if (cumulated >= part * step && part < parts) {
      put({ ...open, to: index });
      open = { from: index + 1, before: 0, now: 0 };
      part = Math.floor(cumulated / step) + 1;
    }
  }
  put({ ...open, to: before.length - 1 });
  return bins;
}

/** The bins with what they hold, for people. */
export function nameBins(bins: readonly EntryBin[], { name, special }: Aligned): PsiBin[] {
  const own = new Set(bins.filter(({ isOwn }) => isOwn === true).map(({ from }) => from));
  return bins.map((bin) => {
    const { from, to, before, now } = bin;
    const values = from < 0 ? (special[-1 - from]?.name ?? "") : bin.isOwn === true ? name(from, to) : openName(bin);
    return { values, before, now };
  });

  /** Names the entries of a bin from the first to the last that has no bin of its own, and those between that do. */
  function openName({ from: first, to: last }: EntryBin): string {
    let [from, to] = [first, last];
    while (from < to && own.has(from)) {
      from += 1;
    }
    while (to > from && own.has(to)) {
      to -= 1;
    }
    const inside = [...own].filter((entry) => entry > from && entry < to);
    const [one] = inside;
    const without =
      one === undefined ? "" : `, except ${inside.length === 1 ? name(one, one) : `${inside.length} other bins`}`;
    return `${name(from, to)}${without}`;
  }
}

function total(counts: Float64Array): number {
  let sum = 0;
  for (let index = 0; index < counts.length; index += 1) {
    sum += counts[index] as number;
  }
  return sum;
}

function ownEntries(before: Float64Array, now: Float64Array, leastBefore: number, leastNow: number): Uint8Array {
  const isOwn = new Uint8Array(before.length);
  for (let index = 0; index < before.length; index += 1) {
    const [was, is] = [before[index] as number, now[index] as number];
    isOwn[index] = (was >= leastBefore && was > 0) || (is >= leastNow && is > 0) ? 1 : 0;
  }
  return isOwn;
}
