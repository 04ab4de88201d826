import { type Column, type ColumnType, layoutOf } from "./types.js";
import { allocate } from "./values.js";
import { assertNever } from "../util/errors.js";

/** Makes a column that has only NULLs. */
export function nullColumn(type: ColumnType, rows: number): Column {
  const layout = layoutOf(type);
  const valid = new Uint8Array(rows);
  switch (layout.kind) {
    case "fixed":
      return {
        kind: "fixed",
        elementsPerValue: layout.elementsPerValue,
        data: allocate(layout.element, rows * layout.elementsPerValue),
        valid,
      };
    case "bytes":
      return { kind: "bytes", offsets: new Uint32Array(rows + 1), bytes: new Uint8Array(0), valid };
    case "list":
      return { kind: "list", offsets: new Uint32Array(rows + 1), child: nullColumn(layout.element, 0), valid };
    case "struct":
      return {
        kind: "struct",
        rowCount: rows,
        children: layout.fields.map((field) => nullColumn(field.type, rows)),
        valid,
      };
    default:
      return assertNever(layout);
  }
}

/** Rows [from, to) of a column, in place. */
export function sliceColumn(column: Column, from: number, to: number): Column {
  const valid = column.valid?.subarray(from, to);
  switch (column.kind) {
    case "fixed":
      return {
        ...column,
        data: column.data.subarray(from * column.elementsPerValue, to * column.elementsPerValue),
        valid,
      };
    case "bytes":
    case "list":
      return { ...column, offsets: column.offsets.subarray(from, to + 1), valid };
    case "struct":
      return {
        kind: "struct",
        rowCount: to - from,
        children: column.children.map((child) => sliceColumn(child, from, to)),
        valid,
      };
    default:
      return assertNever(column);
  }
}

/** Rows of a column. */
export function rowsOf(column: Column): number {
  switch (column.kind) {
    case "fixed":
      return column.data.length / column.elementsPerValue;
    case "bytes":
    case "list":
      return column.offsets.length - 1;
    case "struct":
      return column.rowCount;
    default:
      return assertNever(column);
  }
}
