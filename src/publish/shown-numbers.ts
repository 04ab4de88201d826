/** A number with three digits that count: "0.0123", "1.3", "4210". Texts as they are. */
export function shown(value: number | string): string {
  return typeof value === "string" || Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(3)));
}

/** A share as a percentage: "5.12%". */
export function percent(value: number | string): string {
  return typeof value === "string" ? value : `${shown(value * 100)}%`;
}
