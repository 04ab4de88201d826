import type { ColumnType } from "./types.js";

/** Returns the digits of a whole number with a decimal point before the last `scale` of them: "-12345" as "-123.45". */
export function withPoint(digits: string, scale: number): string {
  if (scale === 0) {
    return digits;
  }
  const sign = digits.startsWith("-") ? "-" : "";
  const padded = digits.slice(sign.length).padStart(scale + 1, "0");
  return `${sign}${padded.slice(0, -scale)}.${padded.slice(-scale)}`;
}

/** Returns the largest whole number of units of 10^-scale that is not above a number, such as 125 of 1.259 for scale 2. */
export function floorToScale(value: number, scale: number): bigint {
  const [, whole = "0", fraction = "", exponent = "0"] =
    /^(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/.exec(String(value)) ?? [];
  const shift = scale - fraction.length + Number(exponent);
  const digits = BigInt(whole + fraction);
  return shift >= 0 ? digits * 10n ** BigInt(shift) : digits / 10n ** BigInt(-shift);
}

/** The digits of a decimal behind its point; undefined for other types. */
export function scaleOf(type: ColumnType | undefined): number | undefined {
  return typeof type === "object" && type.kind === "decimal" ? type.scale : undefined;
}
