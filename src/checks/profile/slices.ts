import { takeRows } from "../../columnar/column-take.js";
import { numberTexts } from "../../columnar/numbered-texts.js";
import type { ColumnType, FixedColumn, NamedColumn, OutputRows } from "../../columnar/types.js";
import { printable } from "../../util/texts.js";
import {
  type ColumnProfile,
  type ColumnsJson,
  columnsJson,
  type JsonLimits,
  mergeColumns,
  namedRows,
  parseColumns,
  profileColumn,
} from "./column.js";

/** The slices of a run: rows that share a value of a column are profiled separately. */
export interface SlicePlan {
  /** The columns of the output whose values divide the rows. */
  readonly columns: readonly string[];
  /** The predicted columns that are profiled. */
  readonly outputs: readonly string[];
  /** The limit of values of a column. */
  readonly values: number;
}

/** Profiles of slices that all columns share, and outputs that each slice has: their JSON takes up to 64 KiB. */
const [mostProfiles, mostOutputs, mostSlices] = [150, 8, 50];
/** The most bins of a slice's histogram. */
const sliceBins = 32;

/** Plans slices of the columns in `checks.slices` for the first outputs, without vectors. */
export function planSlices(
  columns: readonly string[],
  outputs: readonly { readonly name: string; readonly type: ColumnType }[],
): SlicePlan {
  const chosen = outputs
    .filter(({ type }) => typeof type !== "object" || type.kind === "decimal")
    .map(({ name }) => name)
    .slice(0, mostOutputs);
  const slices = Math.min(mostSlices, Math.floor(mostProfiles / Math.max(1, chosen.length)));
  return { columns, outputs: chosen, values: Math.floor(slices / columns.length) };
}

/** Whether the values of a column of this type can divide rows. */
export function dividesRows(type: ColumnType): boolean {
  return type === "utf8" || type === "bool" || (typeof type === "string" && /^u?int\d+$/.test(type));
}

/** The profiles of the predicted columns, by name, for the rows with one value of a column. */
type SliceColumns = ReadonlyMap<string, ColumnProfile>;

/** Profiles of the rows, grouped by the values of some columns. */
export interface SliceProfiles {
  /** The limit of values of a column. */
  readonly values: number;
  /** Profiles by column, then by value; the key null is NULL. undefined: the column has more values than are profiled. */
  readonly columns: ReadonlyMap<string, ReadonlyMap<string | null, SliceColumns> | undefined>;
}

/** Profiles predicted columns of some rows by the values of other columns. */
export function profileSlices({ columns: all }: OutputRows, { columns, outputs, values }: SlicePlan): SliceProfiles {
  const named = (name: string): NamedColumn[] => all.filter((column) => column.name === name);
  const predicted = outputs.flatMap(named);
  const profilesOf = (rows: Uint32Array<ArrayBuffer>): SliceColumns =>
    new Map(
      predicted.map(({ name, type, column }) => {
        const taken = takeRows(type, column, { indices: rows, valid: undefined, limit: Number.POSITIVE_INFINITY });
        return [name, profileColumn({ name, type }, taken, sliceBins)];
      }),
    );
  return {
    values,
    columns: new Map(
      columns.flatMap(named).map((column) => {
        const groups = groupRows(column, values);
        return [column.name, groups && new Map([...groups].map(([value, rows]) => [value, profilesOf(rows)]))];
      }),
    ),
  };
}

/** Merges the slices of different rows of a run, in any order. */
export function mergeSlices(first: SliceProfiles, second: SliceProfiles): SliceProfiles {
  const columns = new Map(first.columns);
  for (const [column, more] of second.columns) {
    columns.set(column, mergeValues(columns.get(column), more, first.values));
  }
  return { values: first.values, columns };
}

type Values = ReadonlyMap<string | null, SliceColumns>;

function mergeValues(first: Values | undefined, second: Values | undefined, limit: number): Values | undefined {
  if (first === undefined || second === undefined) {
    return undefined;
  }
  const values = new Map(first);
  for (const [value, profiles] of second) {
    const before = values.get(value);
    const merged = [...profiles].map(([name, profile]) => {
      const known = before?.get(name);
      return [name, known === undefined ? profile : mergeColumns(known, profile, sliceBins)] as const;
    });
    values.set(value, new Map(merged));
  }
  return values.size > limit ? undefined : values;
}

/** Slices as plain JSON; equal slices have equal texts. */
export interface SlicesJson {
  readonly values: number;
  /** null: the column has more values than are profiled. */
  readonly columns: readonly (readonly [string, readonly (readonly [string | null, ColumnsJson])[] | null])[];
}

export function slicesJson({ values, columns }: SliceProfiles, limits: JsonLimits): SlicesJson {
  return {
    values,
    columns: [...columns].map(([column, groups]) => [
      column,
      groups === undefined ? null : sorted(groups).map(([value, profiles]) => [value, columnsJson(profiles, limits)]),
    ]),
  };
}

function sorted<T>(groups: ReadonlyMap<string | null, T>): (readonly [string | null, T])[] {
  return [...groups].toSorted(([left], [right]) => (sortKey(left) < sortKey(right) ? -1 : 1));
}

function sortKey(value: string | null): string {
  return value === null ? "" : `=${value}`;
}

/** Reads what `slicesJson` made. */
export function parseSlices({ values, columns }: SlicesJson): SliceProfiles {
  return {
    values,
    columns: new Map(
      columns.map(([column, groups]) => [
        column,
        groups === null ? undefined : new Map(groups.map(([value, profiles]) => [value, parseColumns(profiles)])),
      ]),
    ),
  };
}

/**
 * The slices of a run that its published profile has, by "country=FR": those with as many rows as a value must have to be
 * named. A smaller one could reveal the prediction for a single person.
 */
export function namedSlices({ columns }: SliceProfiles): Map<string, SliceColumns> {
  const slices = new Map<string, SliceColumns>();
  for (const [column, groups] of columns) {
    for (const [value, profiles] of sorted(groups ?? new Map<string | null, SliceColumns>())) {
      const [first] = profiles.values();
      if (first !== undefined && first.rows >= namedRows) {
        slices.set(value === null ? `${column} is NULL` : `${column}=${printable(value)}`, profiles);
      }
    }
  }
  return slices;
}

/** The size limit of a value, in bytes. Longer values identify single rows, not groups. */
const longValue = 64;
const decoder = new TextDecoder();

/**
 * Groups rows by value. Keys are the values as texts, and null for NULL. undefined: there are more than `limit` values, or
 * one is too long.
 */
function groupRows(
  { name, type, column }: NamedColumn,
  limit: number,
): Map<string | null, Uint32Array<ArrayBuffer>> | undefined {
  if (column.kind !== "bytes" && column.kind !== "fixed") {
    throw new Error(`slices of ${name}, a column of lists or structs`);
  }
  const texts = column.kind === "bytes" ? numberTexts(column) : undefined;
  const values = texts?.indices ?? (column as FixedColumn).data;
  const groups = new Map<number | bigint | null, number[]>();
  for (let row = 0; row < values.length; row += 1) {
    const value = column.valid?.[row] === 0 ? null : (values[row] as number | bigint);
    const rows = groups.get(value);
    if (rows !== undefined) {
      rows.push(row);
    } else if (groups.size < limit) {
      groups.set(value, [row]);
    } else {
      return undefined;
    }
  }
  const named = new Map<string | null, Uint32Array<ArrayBuffer>>();
  for (const [value, rows] of groups) {
    let text = value === null ? null : type === "bool" ? String(value === 1) : String(value);
    if (value !== null && texts !== undefined) {
      const { bytes, offsets } = texts.entries;
      const at = offsets.subarray(Number(value), Number(value) + 2);
      if ((at[1] as number) - (at[0] as number) > longValue) {
        return undefined;
      }
      text = decoder.decode(bytes.subarray(at[0], at[1]));
    }
    named.set(text, Uint32Array.from(rows));
  }
  return named;
}
