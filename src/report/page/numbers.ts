import { withDigits } from "../../util/shown-numbers.js";

const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** From here on, a number has an exponent. float64 has all digits of smaller whole parts. */
const leastExponent = 1e15;

/**
 * A number with at most four significant digits: "0.4123", "1.2e15". A whole part below 10^15 has all its digits, as in
 * `stats` and in the messages of checks, and no separators, since it may be a date or a code: "20260913".
 */
export function showNumber(value: number): string {
  const short = withDigits(value, 4);
  const isLarge = Math.abs(value) >= leastExponent && Number.isFinite(Number(short));
  return (isLarge ? Number(short).toExponential() : short).replace("e+", "e");
}

/** A share as a percentage with three significant digits: "12.3%"; "<0.01%" for the smallest shares above 0. */
export function showShare(share: number): string {
  const percent = share * 100;
  return percent > 0 && percent < 0.01 ? "<0.01%" : `${Number(percent.toPrecision(3))}%`;
}

/** A logical date without its year: "21 Nov"; other texts as they are. */
export function showDay(date: string): string {
  const [, month, day] = /^\d{4}-(\d\d)-(\d\d)$/.exec(date) ?? [];
  const name = months[Number(month) - 1];
  return day === undefined || name === undefined ? date : `${Number(day)} ${name}`;
}

/** Round numbers from `min` to `max`, a few of them, in ascending order. */
export function ticksBetween(min: number, max: number): number[] {
  const rough = (max - min) / 5;
  if (!(rough > 0) || !Number.isFinite(rough)) {
    return [min];
  }
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
  const first = Math.ceil(min / step - 1e-9);
  const count = Math.max(0, Math.floor(max / step + 1e-9) - first + 1);
  return Array.from({ length: count }, (_, index) => Number(((first + index) * step).toPrecision(15)));
}
