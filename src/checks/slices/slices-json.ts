import { namedRows } from "../profiles/rare-values.js";
import { type ColumnsJson, columnsJson, parseColumns } from "../profiles/profile-json.js";
import { printable } from "../../util/printable.js";
import type { ColumnProfiles } from "../verdicts/run-profile.js";
import type { SliceProfiles } from "./slice-profiles.js";

/** Slices as plain JSON; equal slices have equal texts. */
export interface SlicesJson {
  readonly values: number;
  /** null: the column has more values than are profiled. */
  readonly columns: readonly (readonly [string, readonly (readonly [string | null, ColumnsJson])[] | null])[];
}

export function slicesJson({ values, columns }: SliceProfiles): SlicesJson {
  return {
    values,
    columns: [...columns].map(([column, groups]) => [
      column,
      groups === undefined ? null : sorted(groups).map(([value, profiles]) => [value, columnsJson(profiles)]),
    ]),
  };
}

function sorted<T>(groups: ReadonlyMap<string | null, T>): (readonly [string | null, T])[] {
  return [...groups].toSorted(([one], [other]) => (sortKey(one) < sortKey(other) ? -1 : 1));
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
 * The slices of a run that others may read, by "country=FR": those with as many rows as a value must have to be named. A
 * smaller one could reveal the prediction for a single person.
 */
export function publicSlices({ columns }: SliceProfiles): Map<string, ColumnProfiles> {
  const slices = new Map<string, ColumnProfiles>();
  for (const [column, groups] of columns) {
    for (const [value, profiles] of sorted(groups ?? new Map<string | null, ColumnProfiles>())) {
      const [first] = profiles.values();
      if (first !== undefined && first.rows >= namedRows) {
        slices.set(value === null ? `${column} is NULL` : `${column}=${printable(value)}`, profiles);
      }
    }
  }
  return slices;
}
