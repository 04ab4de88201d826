import { takeRows } from "../../columnar/column-take.js";
import type { NamedColumn, OutputRows } from "../../columnar/types.js";
import { type ColumnProfile, mergeProfiles, profileColumn } from "../profiles/column-profile.js";
import { groupRows } from "./group-rows.js";
import { sliceLimits, type SlicePlan } from "./slice-plan.js";

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
  return {
    values,
    columns: new Map(
      columns.flatMap(named).map((column) => {
        const groups = groupRows(column, values);
        return [
          column.name,
          groups && new Map([...groups].map(([value, rows]) => [value, profileOf(predicted, rows)])),
        ];
      }),
    ),
  };
}

function profileOf(predicted: readonly NamedColumn[], rows: Uint32Array<ArrayBuffer>): SliceColumns {
  return new Map(
    predicted.map(({ name, type, column }) => {
      const taken = takeRows(type, column, { indices: rows, valid: undefined, limit: Number.POSITIVE_INFINITY });
      return [name, profileColumn({ type }, taken, sliceLimits)];
    }),
  );
}

/** Merges the slices of different rows of a run. The result does not depend on the order of merging. */
export function mergeSlices(one: SliceProfiles, other: SliceProfiles): SliceProfiles {
  const columns = new Map(one.columns);
  for (const [column, more] of other.columns) {
    columns.set(column, mergeValues(columns.get(column), more, one.values));
  }
  return { values: one.values, columns };
}

type Values = ReadonlyMap<string | null, SliceColumns>;

function mergeValues(one: Values | undefined, other: Values | undefined, most: number): Values | undefined {
  if (one === undefined || other === undefined) {
    return undefined;
  }
  const values = new Map(one);
  for (const [value, profiles] of other) {
    const before = values.get(value);
    values.set(value, before === undefined ? profiles : mergeColumns(before, profiles));
  }
  return values.size > most ? undefined : values;
}

function mergeColumns(one: SliceColumns, other: SliceColumns): SliceColumns {
  return new Map(
    [...one].map(([name, profile]) => {
      const more = other.get(name);
      return [name, more === undefined ? profile : mergeProfiles(profile, more, sliceLimits)];
    }),
  );
}
