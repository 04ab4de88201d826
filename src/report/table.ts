import { displayWidth, padToWidth, wrapToWidth } from "../base/display-width.js";
import { printable } from "../base/texts.js";

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
      return padToWidth(cell, widths[index] ?? 0, right.includes(index) ? "left" : "right");
    });
    return `${indent}${cells.join(gap)}`.trimEnd();
  });
}

function columnWidths(rows: Rows): number[] {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [index, cell] of row.entries()) {
      widths[index] = Math.max(widths[index] ?? 0, displayWidth(cell));
    }
  }
  return widths;
}

export interface FitOptions {
  readonly right?: readonly number[];
  /** Columns in a line of the terminal; undefined: there is none, and the table is as wide as its cells. */
  readonly width: number | undefined;
  /** The columns that may be left out, the least important first. */
  readonly leaveOut?: readonly number[];
  /** Whether the last column has long texts. If the table is too wide, they stand below their rows, its heading too. */
  readonly hasNotes?: boolean;
}

/**
 * Formats rows as `table` does, the first with the headings, in lines that fit a terminal. If columns are left out, a last
 * line names them, each with its value if all rows have the same. If the others are still too wide, the cells of each row
 * stand below one another.
 */
export function fitTable(rows: Rows, { right = [], width, leaveOut = [], hasNotes = false }: FitOptions): string[] {
  const shown = rows.map((row) => row.map(printable));
  const all = [...(shown[0] ?? []).keys()];
  const widths = columnWidths(shown);
  const fits = (columns: readonly number[]): boolean => width === undefined || lineWidth(widths, columns) <= width;
  if (width === undefined || fits(all)) {
    return table(shown, { right });
  }
  const most = hasNotes ? all.slice(0, -1) : all;
  const choices = [undefined, ...leaveOut].map((_, dropped) => {
    const gone = new Set(leaveOut.slice(0, dropped));
    return most.filter((index) => !gone.has(index));
  });
  const fitting = choices.find(fits);
  const columns = fitting ?? choices.at(-1) ?? most;
  const cells = shown.map((row) => columns.map((index) => row[index] ?? ""));
  const aligned = columns.flatMap((index, at) => (right.includes(index) ? [at] : []));
  const lines =
    fitting === undefined
      ? cells.map((row) => brokenRow(row, width))
      : table(cells, { right: aligned }).map((line) => [line]);
  const notes = shown.map((row) => (hasNotes ? wrapped(row.at(-1) ?? "", { width, indent: indent.repeat(3) }) : []));
  const leftOut = most.filter((index) => !columns.includes(index)).map((index) => namedColumn(shown, index));
  return [
    ...lines.flatMap((line, row) => line.concat(notes[row] ?? [])),
    ...(leftOut.length === 0
      ? []
      : wrapped(`no room in ${width} characters for: ${leftOut.join(", ")}`, { width, indent: "" })),
  ];
}

/** Orders columns that may be left out: first those that have one value in all rows, since nothing is lost with them. */
export function sameValueFirst(rows: Rows, columns: readonly number[]): number[] {
  const isSame = (index: number): boolean => new Set(rows.map((row) => row[index])).size <= 1;
  return [...columns.filter(isSame), ...columns.filter((index) => !isSame(index))];
}

function lineWidth(widths: readonly number[], columns: readonly number[]): number {
  return columns.reduce((sum, index) => sum + gap.length + (widths[index] ?? 0), indent.length - gap.length);
}

function namedColumn([headings = [], ...rows]: Rows, index: number): string {
  const [value = "", ...others] = new Set(rows.map((row) => row[index] ?? ""));
  const name = headings[index] ?? "";
  return others.length > 0 || value === "" ? name : `${name} (${value} in all rows)`;
}

/** The cells of a row below one another, all but the first indented more. */
function brokenRow([first = "", ...others]: readonly string[], width: number): string[] {
  const more = others.flatMap((cell) => wrapped(cell, { width, indent: indent.repeat(2) }));
  return [...wrapped(first, { width, indent }), ...more];
}

/** A text needs this many columns; a narrower terminal has less indentation instead. */
const leastText = 16;

function wrapped(text: string, { width, indent: most }: { readonly width: number; readonly indent: string }): string[] {
  const before = most.slice(0, Math.max(0, width - leastText));
  return wrapToWidth(text, width - before.length).map((line) => `${before}${line}`);
}
