import type { ComparedColumn } from "./check.js";
import { quantileOf } from "./profile/column.js";

/** Factors between units that are confused, with what they may mean. */
const factors: readonly (readonly [number, string])[] = [
  [1.609344, "kilometres for miles"],
  [3.6, "km/h for m/s"],
  [2.236936, "mph for m/s"],
  [1.852, "km/h for knots"],
  [2.54, "centimetres for inches"],
  [3.28084, "feet for metres"],
  [2.204623, "pounds for kilograms"],
  [33.8639, "hPa for inches of mercury"],
  [10, "a factor of ten"],
  [100, "percent for shares, or cents"],
  [1000, "thousands"],
  [1e6, "millions"],
  [60, "minutes for hours, or seconds for minutes"],
  [3600, "seconds for hours"],
  [24, "hours for days"],
];
const inverse = (text: string): string => {
  const [from, to] = text.split(" for ");
  return to === undefined ? text : `${to} for ${from}`;
};

const shares = [0.1, 0.25, 0.5, 0.75, 0.9];
/** How far a ratio may be from a known one. */
const nearly = 0.06;

/** Names the unit that the numbers of a column may be in: "×1.61: kilometres for miles?". undefined: none is known. */
export function namedUnit({ now, nights }: Pick<ComparedColumn, "now" | "nights">): string | undefined {
  const pairs = shares.flatMap((share) => {
    const value = quantileOf(now, share);
    const before = nights
      .flatMap(({ column }) => quantileOf(column, share) ?? [])
      .toSorted((left, right) => left - right);
    const middle = before[Math.floor(before.length / 2)];
    return value === undefined || middle === undefined ? [] : [[middle, value] as const];
  });
  const isCelsius =
    pairs.length > 2 && pairs.every(([before, value]) => Math.abs((before - 32) / 1.8 - value) < 3 && before > value);
  const ratios = pairs.filter(([before]) => before !== 0).map(([before, value]) => value / before);
  if (isCelsius && new Set(ratios.map((ratio) => ratio.toFixed(2))).size > 1) {
    return "°C for °F?";
  }
  const known = factors.flatMap(([factor, text]) => [
    [factor, `×${Number(factor.toPrecision(3))}: ${text}?`] as const,
    [1 / factor, `÷${Number(factor.toPrecision(3))}: ${inverse(text)}?`] as const,
  ]);
  const middle = ratios.toSorted((left, right) => left - right)[Math.floor(ratios.length / 2)];
  return middle === undefined || ratios.length < 3
    ? undefined
    : known.find(
        ([factor]) => ratios.filter((ratio) => Math.abs(ratio / factor - 1) < nearly).length >= ratios.length - 1,
      )?.[1];
}
