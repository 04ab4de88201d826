import { printable } from "../util/printable.js";

/**
 * Rows as lines of text, in columns two spaces apart and two spaces in; columns of `right` end at the same place.
 * What a terminal would obey or a line could not hold is shown as its code.
 */
export function table(
  rows: readonly (readonly string[])[],
  { right = [] }: { right?: readonly number[] } = {},
): string[] {
  const shown = rows.map((row) => row.map(printable));
  const widths: number[] = [];
  for (const row of shown) {
    for (const [index, cell] of row.entries()) {
      widths[index] = Math.max(widths[index] ?? 0, cell.length);
    }
  }
  return shown.map((row) => {
    const cells = row.map((cell, index) => {
      const width = widths[index] ?? 0;
      return right.includes(index) ? cell.padStart(width) : cell.padEnd(width);
    });
    return `  ${cells.join("  ")}`.trimEnd();
  });
}
