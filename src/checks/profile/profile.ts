import type { NamedColumn, OutputRows } from "../../columnar/types.js";
import { type AggregateProfile, aggregatesJson, mergeAggregates, parseAggregates } from "../aggregates.js";
import {
  type ColumnProfile,
  type ColumnsJson,
  columnsJson,
  type ColumnToProfile,
  type JsonLimits,
  mergeColumns,
  namedRows,
  parseColumns,
  profileColumn,
} from "./column.js";
import type { ColumnProfiles } from "./run-profile.js";
import { mergeSketches, noRowsSketched, type RowSketch, sketchRows } from "./rows.js";
import { mergeSlices, parseSlices, type SliceProfiles, slicesJson, type SlicesJson } from "./slices.js";

/** The profiles of the columns of some rows: of a piece of a span, a span, or a run. */
export interface SpanProfile {
  /** Rows of the output. */
  readonly rows: number;
  /** The most bins of a column's histogram: spans of one run share it. */
  readonly bins: number;
  /** Profiles of the predicted columns, by name, in the order of the output. */
  readonly columns: ColumnProfiles;
  /** The rows and NULLs of the columns that are carried through, by name. */
  readonly carried: ColumnProfiles;
  /**
   * Profiles of the columns that the model read, by name, in the model's order; undefined: features are not profiled.
   * They describe a sample of the rows, and include rejected rows.
   */
  readonly features?: ColumnProfiles | undefined;
  /** How often whole rows of the output occur. */
  readonly sketch: RowSketch;
  /** Profiles of the rows that share a value of a column of `checks.slices`; undefined: the run has none. */
  readonly slices?: SliceProfiles | undefined;
  /** Profiles of the expressions of `checks.sql`; undefined: the run has none. */
  readonly aggregates?: readonly AggregateProfile[] | undefined;
}

/** The columns of an output that are profiled, in order. */
export interface ProfiledOutput {
  readonly predicted: readonly Omit<ColumnToProfile, "type">[];
  /** The names of those that come from the input as they are. */
  readonly carried: readonly string[];
  readonly bins: number;
}

/** Predicted columns, and features, that are profiled. */
export const profiledColumns = 64;
/** Carried columns whose rows and NULLs are counted. Their JSON has about 70 bytes and a name each. */
export const carriedColumns = 128;
/** JSON of the histograms of a span's columns, in bytes. */
const histogramBytes = 36 * 1024;
/** JSON of the names of a span's values, in bytes. */
const nameBytes = 12 * 1024;
/** JSON of a bin: the step to its key, and its rows. */
const binBytes = 12;

/** The most bins of a histogram, so that the profiles of so many columns have their place in the JSON of a span. */
export function binsFor(columns: number): number {
  return Math.min(400, Math.max(24, Math.floor(histogramBytes / Math.max(1, columns) / binBytes)));
}

/** Profiles the columns of rows. `features`: the features of the rows. */
export function profileRows(
  { rowCount, columns }: OutputRows,
  { predicted, carried, bins }: ProfiledOutput,
  features?: SpanProfile["features"],
): SpanProfile {
  const profilesOf = (wanted: ProfiledOutput["predicted"]): Map<string, ColumnProfile> => {
    const byName = new Map(wanted.map((column) => [column.name, column]));
    const profiled = columns.filter(({ name }) => byName.has(name));
    const profileOf = ({ name, type, column }: NamedColumn): ColumnProfile =>
      profileColumn({ type, ...(byName.get(name) as { name: string }) }, column, bins);
    return new Map(profiled.map((column) => [column.name, profileOf(column)]));
  };
  return {
    rows: rowCount,
    bins,
    columns: profilesOf(predicted.slice(0, profiledColumns)),
    carried: profilesOf(carried.slice(0, carriedColumns).map((name) => ({ name, isKey: true }))),
    sketch: sketchRows(columns, rowCount),
    ...(features === undefined ? {} : { features }),
  };
}

/** The profile of a run without spans: merged with another, it leaves that as it is. */
export const noRows: SpanProfile = {
  rows: 0,
  bins: binsFor(1),
  columns: new Map(),
  carried: new Map(),
  sketch: noRowsSketched,
};

/** Merges the profiles of rows of one output. The result depends neither on how the rows were divided nor on the order. */
export function mergeProfiles(first: SpanProfile, second: SpanProfile): SpanProfile {
  if (first === noRows || second === noRows) {
    return first === noRows ? second : first;
  }
  const bins = Math.min(first.bins, second.bins);
  const merge = <T>(key: keyof SpanProfile, merged: (a: T, b: T) => T): Record<string, T> => {
    const [a, b] = [first[key] as T | undefined, second[key] as T | undefined];
    return a === undefined || b === undefined ? {} : { [key]: merged(a, b) };
  };
  const mergeAll = (a: ColumnProfiles, b: ColumnProfiles): ColumnProfiles => {
    const columns = new Map(a);
    for (const [name, profile] of b) {
      const before = columns.get(name);
      columns.set(name, before === undefined ? profile : mergeColumns(before, profile, bins));
    }
    return columns;
  };
  return {
    rows: first.rows + second.rows,
    bins,
    columns: mergeAll(first.columns, second.columns),
    carried: mergeAll(first.carried, second.carried),
    sketch: mergeSketches(first.sketch, second.sketch),
    ...merge("features", mergeAll),
    ...merge("slices", mergeSlices),
    ...merge("aggregates", mergeAggregates),
  };
}

interface SpanProfileJson {
  readonly rows: number;
  readonly bins: number;
  readonly columns: ColumnsJson;
  readonly carried: ColumnsJson;
  readonly features?: ColumnsJson | undefined;
  readonly sketch: RowSketch;
  readonly slices?: SlicesJson | undefined;
  readonly aggregates?: readonly Readonly<Record<string, unknown>>[] | undefined;
}

/** How many names the profiles of so many columns have. */
export function jsonLimits(columns: number, rows: number): JsonLimits {
  return { nameBytes: Math.max(256, Math.floor(nameBytes / Math.max(1, columns))), namedRows: rows };
}

/**
 * A profile as JSON of at most 64 KiB, the names of its columns, 10 KiB for carried columns, and 64 KiB for slices;
 * equal profiles have equal texts.
 */
export function profileText(profile: SpanProfile): string {
  const { columns, carried, features, slices, aggregates, ...facts } = profile;
  const profiled = columns.size + (features?.size ?? 0);
  return JSON.stringify({
    ...facts,
    columns: columnsJson(columns, jsonLimits(profiled, 1)),
    carried: columnsJson(carried, jsonLimits(profiled, 1)),
    features: features && columnsJson(features, jsonLimits(profiled, namedRows)),
    slices: slices && slicesJson(slices, jsonLimits(profiled, 1)),
    aggregates: aggregates && aggregatesJson(aggregates),
  } satisfies SpanProfileJson);
}

/** Reads what `profileText` wrote; trusts the text to be such. */
export function parseProfile(text: string): SpanProfile {
  const { columns, carried, features, slices, aggregates, ...facts } = JSON.parse(text) as SpanProfileJson;
  return {
    ...facts,
    columns: parseColumns(columns),
    carried: parseColumns(carried),
    ...(features === undefined ? {} : { features: parseColumns(features) }),
    ...(slices === undefined ? {} : { slices: parseSlices(slices) }),
    ...(aggregates === undefined ? {} : { aggregates: parseAggregates(aggregates) }),
  };
}
