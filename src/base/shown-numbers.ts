/** Significant digits of a number in a text. */
const fewDigits = 3;
/** So many tell any two float64 apart. */
const allDigits = 17;

/**
 * A number with three significant digits, or as many as are wanted: "0.0123", "1.3". Whole numbers have all their digits, and
 * texts are as they are. null is what JSON makes of Infinity.
 */
export function shown(value: number | string | null, digits = fewDigits): string {
  return typeof value === "number" && !Number.isInteger(value) ? withDigits(value, digits) : String(value ?? "?");
}

/** Below this, float64 has all digits of a whole part. */
const mostWhole = 1e15;

/**
 * A number with at most so many significant digits: "0.0123", "1.3", "1.2e+300". A whole part below 10^15 is not
 * rounded: "4018".
 */
export function withDigits(value: number, digits: number): string {
  const whole = Math.trunc(Math.abs(value));
  const rounded = value.toPrecision(whole < mostWhole ? Math.max(digits, String(whole).length) : digits);
  // Rounded up, the largest numbers are beyond those of float64.
  return Number.isFinite(value) && !Number.isFinite(Number(rounded)) ? rounded : String(Number(rounded));
}

/** A value of a column: a text that is empty, or begins or ends with a blank, is in quotes. */
export function shownValue(value: number | string): string {
  return typeof value === "string" && (value === "" || value.trim() !== value) ? `"${value}"` : shown(value);
}

/** A whole number with separators: "8,853"; texts are as they are. Without `Intl`, whose first use takes 15 ms. */
export function withSeparators(value: number | string): string {
  return typeof value === "number" ? String(value).replaceAll(/\B(?=(?:\d{3})+$)/g, ",") : value;
}

/** A count with its noun: "1,797 rows", "1 row". */
export function count(value: number, noun: string): string {
  return `${withSeparators(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** A share as a percentage: "5.12%". */
export function percent(value: number | string, digits = fewDigits): string {
  return typeof value === "string" ? value : `${shown(value * 100, digits)}%`;
}

/** Digits with which two numbers are shown about as far apart as they are: three, unless it takes more. */
export function digitsApart(
  one: number | string | null,
  other: number | string | null,
  show: typeof shown | typeof percent = shown,
): number {
  if (typeof one !== "number" || typeof other !== "number") {
    return fewDigits;
  }
  let digits = fewDigits;
  const differenceIn = (wanted: number): number =>
    Number.parseFloat(show(one, wanted)) - Number.parseFloat(show(other, wanted));
  const difference = differenceIn(allDigits);
  while (Math.abs(differenceIn(digits) - difference) > Math.abs(difference) / 2) {
    digits += 1;
  }
  return digits;
}

/** "3 to 5", or "3" where both are shown as the same. */
export function rangeText(low: number | string, high: number | string, digits = fewDigits): string {
  const [from, to] = [shown(low, digits), shown(high, digits)];
  return from === to ? from : `${from} to ${to}`;
}
