import { digitsApart, rangeText, shown } from "../base/shown-numbers.js";
import type { ComparedColumn, Finding } from "./check.js";
import { quantileOf } from "./profile/column.js";

type Numbers = Finding["numbers"];
type Columns = Pick<ComparedColumn, "now" | "nights">;

const quantiles = {
  median: [0.5, "median"],
  p10: [0.1, "a tenth is below"],
  p90: [0.9, "a tenth is above"],
} as const;

/**
 * Or another quantile where only that has moved, the extremes before, and a likely unit. Empty if nothing ever moved.
 */
export function mediansOf({ now, nights }: Columns): Numbers {
  const all = Object.entries(quantiles).flatMap(([name, [share]]) => {
    const value = quantileOf(now, share);
    const before = nights.flatMap(({ column }) => quantileOf(column, share) ?? []);
    const [low, high] = [Math.min(...before), Math.max(...before)];
    return value === undefined || before.length === 0 ? [] : [{ name, value, low, high }];
  });
  const named =
    all.find(({ value, low, high }) => value < low || value > high) ?? all.find(({ low, high }) => low < high);
  return { ...(named && { [named.name]: named.value, low: named.low, high: named.high }), ...unitOf({ now, nights }) };
}

/** "median 4.05, usually 4050 (÷1000: thousands?)"; undefined: there is none. @param word before the numbers of earlier runs */
export function mediansText(numbers: Numbers, word: string): string | undefined {
  const { low = 0, high = 0, unit } = numbers;
  for (const [name, [, text]] of Object.entries(quantiles)) {
    const value = numbers[name];
    if (value !== undefined) {
      const digits = digitsApart(value, Number(value) > Number(high) ? high : low);
      const named = unit === undefined ? "" : ` (${unit})`;
      return `${text} ${shown(value, digits)}, ${word} ${rangeText([Number(low), Number(high)], (each) => shown(each, digits))}${named}`;
    }
  }
  return undefined;
}

/** Factors between units that are confused, with what they may mean, and what their inverses may. */
const factors: readonly (readonly [factor: number, text: string, inverse?: string])[] = [
  [1.609344, "kilometres for miles"],
  [3.6, "km/h for m/s"],
  [2.236936, "mph for m/s"],
  [1.852, "km/h for knots"],
  [2.54, "centimetres for inches"],
  [3.28084, "feet for metres"],
  [2.204623, "pounds for kilograms"],
  [33.8639, "hPa for inches of mercury"],
  [10, "a factor of ten"],
  [100, "percent for shares, or cents", "shares for percent"],
  [1000, "thousands"],
  [1e6, "millions"],
  [60, "minutes for hours, or seconds for minutes", "hours for minutes, or minutes for seconds"],
  [3600, "seconds for hours"],
  [24, "hours for days"],
];

const shares = [0.1, 0.25, 0.5, 0.75, 0.9];
/** How far a ratio may be from a known one. */
const nearly = 0.06;

function middleOf(values: readonly number[]): number | undefined {
  return values.toSorted((left, right) => left - right)[Math.floor(values.length / 2)];
}

/** The unit that the numbers of a column may be in, where all quantiles have changed by about a known factor: "×1.61: kilometres for miles?". */
export function unitOf({ now, nights }: Columns): { readonly unit?: string } {
  const pairs = shares.flatMap((share) => {
    const value = quantileOf(now, share);
    const before = middleOf(nights.flatMap(({ column }) => quantileOf(column, share) ?? []));
    return value === undefined || before === undefined ? [] : [[before, value] as const];
  });
  const ratios = pairs.filter(([before]) => before !== 0).map(([before, value]) => value / before);
  const isCelsius =
    pairs.length > 2 && pairs.every(([before, value]) => Math.abs((before - 32) / 1.8 - value) < 3 && before > value);
  if (isCelsius && new Set(ratios.map((ratio) => ratio.toFixed(2))).size > 1) {
    return { unit: "°C for °F?" };
  }
  const isAbout = (factor: number): boolean =>
    ratios.length > 2 && ratios.filter((ratio) => Math.abs(ratio / factor - 1) < nearly).length >= ratios.length - 1;
  for (const [factor, text, inverse = text.split(" for ").toReversed().join(" for ")] of factors) {
    const rounded = Number(factor.toPrecision(3));
    if (isAbout(factor) || isAbout(1 / factor)) {
      return { unit: isAbout(factor) ? `×${rounded}: ${text}?` : `÷${rounded}: ${inverse}?` };
    }
  }
  return {};
}
