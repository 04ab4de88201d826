import { numberTexts } from "../../columnar/numbered-texts.js";
import type { BytesColumn, Column, ColumnType, FixedColumn } from "../../columnar/types.js";

/** The size limit of a value, in bytes. Longer values identify single rows, not groups. */
const longValue = 64;

/**
 * Groups rows by value. Keys are the values as texts, and null for NULL. undefined: there are more than `most` values.
 */
export function groupRows(
  { type, column }: { readonly type: ColumnType; readonly column: Column },
  most: number,
): Map<string | null, Uint32Array<ArrayBuffer>> | undefined {
  const numbered =
    column.kind === "bytes"
      ? numberBytes(column)
      : column.kind === "fixed"
        ? numberFixed(column, type === "bool")
        : undefined;
  if (numbered === undefined) {
    throw new Error("slices of a column of lists or structs");
  }
  const { entries, names } = numbered;
  const counts = new Map<number, number>();
  for (const entry of entries) {
    counts.set(entry, (counts.get(entry) ?? 0) + 1);
    if (counts.size > most) {
      return undefined;
    }
  }
  const groups = new Map([...counts].map(([entry, count]) => [entry, { rows: new Uint32Array(count), filled: 0 }]));
  for (let row = 0; row < entries.length; row += 1) {
    const group = groups.get(entries[row] as number);
    if (group !== undefined) {
      group.rows[group.filled] = row;
      group.filled += 1;
    }
  }
  const named = new Map<string | null, Uint32Array<ArrayBuffer>>();
  for (const [entry, { rows }] of groups) {
    const name = entry === nullEntry ? null : names(entry);
    if (name === undefined) {
      return undefined;
    }
    named.set(name, rows);
  }
  return named;
}

/**
 * The rows of a column, each with the number of its value. `names` returns the value as text; undefined: it is too
 * long.
 */
interface Numbered {
  readonly entries: Float64Array;
  readonly names: (entry: number) => string | undefined;
}

const nullEntry = -1;
const decoder = new TextDecoder();

function numberBytes(column: BytesColumn): Numbered {
  const { entries: texts, indices } = numberTexts(column);
  const { offsets, bytes } = texts;
  return {
    entries: Float64Array.from(indices, (entry, row) => (column.valid?.[row] === 0 ? nullEntry : Number(entry))),
    names(entry) {
      const [from, to] = [offsets[entry] as number, offsets[entry + 1] as number];
      return to - from > longValue ? undefined : decoder.decode(bytes.subarray(from, to));
    },
  };
}

function numberFixed({ data, valid }: FixedColumn, isBool: boolean): Numbered {
  const seen = new Map<number | bigint, number>();
  const entries = new Float64Array(data.length);
  for (let row = 0; row < data.length; row += 1) {
    if (valid?.[row] === 0) {
      entries[row] = nullEntry;
      continue;
    }
    const value = data[row] as number | bigint;
    const entry = seen.get(value) ?? seen.size;
    seen.set(value, entry);
    entries[row] = entry;
  }
  const values = [...seen.keys()];
  return { entries, names: (entry) => String(isBool ? values[entry] === 1 : values[entry]) };
}
