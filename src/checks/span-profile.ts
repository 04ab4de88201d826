import type { NamedColumn, OutputRows } from "../columnar/types.js";
import {
  type ColumnProfile,
  mergeProfiles,
  profileColumn,
  profiledColumns,
  profileLimits,
} from "./profiles/column-profile.js";
import { parseProfile, type ProfileJson, profileJson } from "./profiles/profile-json.js";

/** The profiles of the predicted columns of some rows: of a piece of a span, a span, or a run. */
export interface SpanProfile {
  /** Rows of the output. */
  readonly rows: number;
  /** By the column's name, in the order of the output. At most 32 columns are profiled. */
  readonly columns: ReadonlyMap<string, ColumnProfile>;
}

/** Profiles the predicted columns of rows. `predicted`: all predicted columns, by name. */
export function profileRows(
  { rowCount, columns }: OutputRows,
  predicted: readonly Pick<NamedColumn, "name">[],
): SpanProfile {
  const names = new Set(predicted.slice(0, profiledColumns).map(({ name }) => name));
  const limits = limitsOf(names.size);
  const profiles = columns.flatMap(({ name, type, column }) =>
    names.has(name) ? [[name, profileColumn({ type }, column, limits)] as const] : [],
  );
  return { rows: rowCount, columns: new Map(profiles) };
}

/**
 * Merges the profiles of rows of one output. The result does not depend on how the rows were divided, nor on the order
 * of merging.
 */
export function mergeSpanProfiles(one: SpanProfile, other: SpanProfile): SpanProfile {
  const limits = limitsOf(one.columns.size);
  const columns = new Map(one.columns);
  for (const [name, profile] of other.columns) {
    const before = columns.get(name);
    columns.set(name, before === undefined ? profile : mergeProfiles(before, profile, limits));
  }
  return { rows: one.rows + other.rows, columns };
}

/** Columns share 64 KiB of JSON. */
function limitsOf(columns: number): ReturnType<typeof profileLimits> {
  return profileLimits(Math.min(columns, profiledColumns));
}

/** A profile as JSON of at most 64 KiB and the names of its columns; equal profiles have equal texts. */
export function spanProfileText({ rows, columns }: SpanProfile): string {
  return JSON.stringify({ rows, columns: columnsJson(columns) });
}

/** Profiles of columns as plain JSON. */
export function columnsJson(columns: SpanProfile["columns"]): readonly (readonly [string, ProfileJson])[] {
  return [...columns].map(([name, profile]) => [name, profileJson(profile)]);
}

/** Reads what `spanProfileText` wrote; trusts the text to be such. */
export function parseSpanProfile(text: string): SpanProfile {
  const { rows, columns } = JSON.parse(text) as { rows: number; columns: ReturnType<typeof columnsJson> };
  return { rows, columns: parseColumns(columns) };
}

/** Reads what `columnsJson` made. */
export function parseColumns(columns: ReturnType<typeof columnsJson>): SpanProfile["columns"] {
  return new Map(columns.map(([name, profile]) => [name, parseProfile(profile)]));
}
