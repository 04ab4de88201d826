const fewDigits = 3;
/** So many tell any two float64 apart. */
const allDigits = 17;
/** Below this, float64 has all digits of a whole part. */
const mostWhole = 1e15;

/**
 * A number with three significant digits, or as many as are wanted: "0.0123", "1.3". Whole numbers have all their digits, and
 * texts are as they are. null is what JSON makes of Infinity.
 */
export function shown(value: number | string | null, digits = fewDigits): string {
  return typeof value === "number" && !Number.isInteger(value) ? withDigits(value, digits) : String(value ?? "?");
}

/**
 * A number with at most so many significant digits: "0.0123", "1.3", "1.2e+300". A whole part below 10^15 is not
 * rounded: "4018".
 */
export function withDigits(value: number, digits: number): string {
  const whole = Math.trunc(Math.abs(value));
  const text = value.toPrecision(whole < mostWhole ? Math.max(digits, String(whole).length) : digits);
  // Rounded up, the largest numbers are beyond those of float64.
  return Number.isFinite(value) && !Number.isFinite(Number(text)) ? text : String(Number(text));
}

/** A value of a column: a text that is empty, or begins or ends with a blank, is in quotes. */
export function shownValue(value: number | string): string {
  return typeof value === "string" && (value === "" || value.trim() !== value) ? `"${value}"` : shown(value);
}

/** A whole number with separators: "8,853"; texts are as they are. Without `Intl`, whose first use takes 15 ms. */
export function showCount(value: number | string): string {
  return typeof value === "number" ? String(value).replaceAll(/\B(?=(?:\d{3})+$)/g, ",") : value;
}

/** A count with its noun: "1,797 rows", "1 row". */
export function count(value: number, noun: string): string {
  return `${showCount(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** A share as a percentage, "5.12%", with so many digits that only all of it is 100%: "99.996%". Texts are as they are. */
export function percent(value: number | string, digits = fewDigits): string {
  if (typeof value === "string") {
    return value;
  }
  const text = shown(value * 100, digits);
  return text === "100" && value < 1 && digits < allDigits ? percent(value, digits + 1) : `${text}%`;
}

/** Digits with which two numbers are shown about as far apart as they are: three, unless it takes more. */
export function digitsApart(left: number | string, right: number | string): number {
  if (typeof left !== "number" || typeof right !== "number") {
    return fewDigits;
  }
  const differenceIn = (digits: number): number => Number(shown(left, digits)) - Number(shown(right, digits));
  const difference = differenceIn(allDigits);

  let digits = fewDigits;
  while (Math.abs(differenceIn(digits) - difference) > Math.abs(difference) / 2) {
    digits += 1;
  }
  return digits;
}

/** The least and the greatest of some numbers, "3 to 5"; or "3" where both are shown as the same. */
export function rangeText(values: readonly number[], show: (value: number) => string): string {
  const [low, high] = [show(Math.min(...values)), show(Math.max(...values))];
  return low === high ? low : `${low} to ${high}`;
}

/** A size: "512 MiB", "1.5 GiB". */
export function showBytes(bytes: number): string {
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let size = bytes / 1024;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${Number(size.toFixed(size < 10 ? 1 : 0))} ${units[unit]}`;
}

/** An amount of money: whole cents, or more digits where it is less than one. */
export function showCost(cost: number): string {
  return cost >= 0.1 || cost === 0 ? cost.toFixed(2) : String(Number(cost.toPrecision(2)));
}

/** A duration: "45 s", "12 min", "3 h 40 min". */
export function showDuration(seconds: number): string {
  if (seconds < 120) {
    return `${Math.round(seconds)} s`;
  }
  const minutes = Math.round(seconds / 60);
  const [hours, rest] = [Math.floor(minutes / 60), minutes % 60];
  return minutes < 120 ? `${minutes} min` : rest === 0 ? `${hours} h` : `${hours} h ${rest} min`;
}

/** A duration that may be short: "0.3 s", "45 s", "12 min". */
export function showShortDuration(seconds: number): string {
  return seconds < 10 ? `${Math.max(0.1, seconds).toFixed(1)} s` : showDuration(seconds);
}

/** A rate: "2.4 M rows/s". */
export function showRate(rowsPerSecond: number): string {
  if (rowsPerSecond >= 1e6) {
    return `${(rowsPerSecond / 1e6).toFixed(2)} M rows/s`;
  }
  return rowsPerSecond >= 1e4 ? `${(rowsPerSecond / 1e3).toFixed(0)} k rows/s` : `${rowsPerSecond.toFixed(0)} rows/s`;
}

/** Rounds for JSON: by default to milliseconds, or thousandths of a share. */
export function rounded<T extends number | null>(value: T, decimals = 3): T {
  return (value === null ? null : Math.round(value * 10 ** decimals) / 10 ** decimals) as T;
}
