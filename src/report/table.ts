import { printable } from "../util/printable.js";

/**
 * Formats rows as lines with aligned columns, indented by two spaces and two spaces apart. Columns in `right` are aligned
 * right. Control characters and newlines are shown as codes.
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
