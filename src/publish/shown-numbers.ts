/** A number with three significant digits: "0.0123", "1.3", "4210". Texts as they are. null is what JSON makes of Infinity. */
export function shown(value: number | string | null): string {
  return typeof value === "number" && !Number.isInteger(value)
    ? String(Number(value.toPrecision(3)))
    : String(value ?? "?");
}

/** A share as a percentage: "5.12%". */
export function percent(value: number | string): string {
  return typeof value === "string" ? value : `${shown(value * 100)}%`;
}
