import { printable } from "../util/printable.js";

type Rows = readonly (readonly string[])[];

const indent = "  ";
const gap = "  ";

/**
 * Formats rows as lines with aligned columns, indented by two spaces and two spaces apart. Columns in `right` are aligned
 * right. Control characters and newlines are shown as codes.
 */
export function table(rows: Rows, { right = [] }: { right?: readonly number[] } = {}): string[] {
  const shown = rows.map((row) => row.map(printable));
  const widths = columnWidths(shown);
  return shown.map((row) => {
    const cells = row.map((cell, index) => {
      const width = widths[index] ?? 0;
      return right.includes(index) ? cell.padStart(width) : cell.padEnd(width);
    });
    return `${indent}${cells.join(gap)}`.trimEnd();
  });
}

function columnWidths(rows: Rows): number[] {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [index, cell] of row.entries()) {
      widths[index] = Math.max(widths[index] ?? 0, cell.length);
    }
  }
  return widths;
}

/** How a table is fitted into a terminal. */
export interface FitOptions {
  readonly right?: readonly number[];
  /** Characters in a line of the terminal; undefined: there is none, and the table is as wide as its cells. */
  readonly width: number | undefined;
  /** The columns that may be left out, the least important first. */
  readonly leaveOut?: readonly number[];
  /** Whether the last column has long texts. If the table is too wide, they stand below their rows. */
  readonly hasNotes?: boolean;
}

/**
 * Formats rows as `table` does, the first with the headings, in lines that fit a terminal. If columns are left out, a last
 * line names them, each with its value if all rows have the same.
 */
export function fitTable(rows: Rows, { right = [], width, leaveOut = [], hasNotes = false }: FitOptions): string[] {
  const shown = rows.map((row) => row.map(printable));
  const all = [...(shown[0] ?? []).keys()];
  const widths = columnWidths(shown);
  const fits = (columns: readonly number[]): boolean => width === undefined || lineLength(widths, columns) <= width;
  if (width === undefined || fits(all)) {
    return table(shown, { right });
  }
  const most = hasNotes ? all.slice(0, -1) : all;
  const choices = [undefined, ...leaveOut].map((_, dropped) => {
    const gone = new Set(leaveOut.slice(0, dropped));
    return most.filter((index) => !gone.has(index));
  });
  const columns = choices.find(fits) ?? choices.at(-1) ?? most;
  const lines = table(
    shown.map((row) => columns.map((index) => row[index] ?? "")),
    { right: columns.flatMap((index, at) => (right.includes(index) ? [at] : [])) },
  );
  const withNote = (line: string, row: number): string[] => {
    const note = hasNotes && row > 0 ? (shown[row]?.at(-1) ?? "") : "";
    return [line].concat(wrapped(note, { width, indent: indent.repeat(3) }));
  };
  const leftOut = most.filter((index) => !columns.includes(index)).map((index) => namedColumn(shown, index));
  return [
    ...lines.flatMap(withNote),
    ...(leftOut.length === 0
      ? []
      : wrapped(`no room in ${width} characters for: ${leftOut.join(", ")}`, { width, indent: "" })),
  ];
}

function lineLength(widths: readonly number[], columns: readonly number[]): number {
  return columns.reduce((sum, index) => sum + gap.length + (widths[index] ?? 0), indent.length - gap.length);
}

function namedColumn([headings = [], ...rows]: Rows, index: number): string {
  const [value = "", ...others] = new Set(rows.map((row) => row[index] ?? ""));
  const name = headings[index] ?? "";
  return others.length > 0 || value === "" ? name : `${name} (${value} in all rows)`;
}

/** Breaks a text into lines, between words where it can. */
function wrapped(
  text: string,
  { width, indent: before }: { readonly width: number; readonly indent: string },
): string[] {
  const most = Math.max(20, width - before.length);
  const lines = text.match(new RegExp(`\\S.{0,${most - 1}}(?=\\s|$)|\\S.{0,${most - 1}}`, "gu")) ?? [];
  return lines.map((line) => `${before}${line.trimEnd()}`);
}
