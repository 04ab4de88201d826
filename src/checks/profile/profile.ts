import { numberTexts } from "../../columns/numbered-texts.js";
import type { ColumnType, FixedColumn, NamedColumn, OutputRows, TypedColumn } from "../../columns/types.js";
import { assertNever } from "../../base/errors.js";
import { printable } from "../../base/texts.js";
import type { Finding } from "../check.js";
import {
  type ColumnJson,
  type ColumnProfile,
  type ColumnToProfile,
  type ColumnsJson,
  type JsonLimits,
  type NumberColumn,
  columnJson,
  columnsJson,
  countedRows,
  mergeColumns,
  namedRows,
  parseColumn,
  parseColumns,
  profileColumn,
} from "./column.js";
import { type RowSketch, mergeSketches, noRowsSketched, sketchRows } from "./profile-loops.js";
import type { ColumnProfiles, RunProfile } from "./run-profile.js";
import { takeRows } from "../../columns/columns.js";

export interface SpanProfile {
  readonly rows: number;
  /** The most bins of a column's histogram: spans of one run share it. */
  readonly bins: number;
  readonly columns: ColumnProfiles;
  /** The rows and NULLs of the columns that are carried through, by name. */
  readonly carried: ColumnProfiles;
  /** By name, in the model's order; undefined: not profiled. Of a sample of the rows, rejected ones too. */
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

/** The profile of the rows of two runs of a job: of the columns that the later one has, and with that run's facts. */
export function addProfiles(earlier: RunProfile, run: RunProfile): RunProfile {
  const bins = binsFor(run.outputs.size + run.features.size);
  const add = (before: ColumnProfiles | undefined, now: ColumnProfiles): ColumnProfiles =>
    new Map(
      [...now].map(([name, column]) => {
        const known = before?.get(name);
        return [name, known === undefined ? column : mergeColumns(column, known, bins)];
      }),
    );
  const { repeated: _, filtered: __, ...facts } = run; // shares of two samples make none
  const { isApproved = run.isApproved } = earlier;
  return {
    ...facts,
    ...(isApproved === undefined ? {} : { isApproved }),
    rows: earlier.rows + run.rows,
    rejected: earlier.rejected + run.rejected,
    outputs: add(earlier.outputs, run.outputs),
    carried: add(earlier.carried, run.carried),
    features: add(earlier.features, run.features),
    slices: new Map(), // a run leaves small ones out
  };
}

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

/** At most 64 KiB, plus names, 10 KiB for carried columns, and 64 KiB for slices; equal profiles have equal texts. */
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

/** The slices of a run: rows that share a value of a column are profiled separately. */
export interface SlicePlan {
  readonly columns: readonly string[];
  readonly outputs: readonly string[];
  readonly values: number;
}

/** Profiles of slices that all columns share, and outputs that each slice has: their JSON takes up to 64 KiB. */
const [mostProfiles, mostOutputs, mostSlices] = [150, 8, 50];
/** The most bins of a slice's histogram. */
const sliceBins = 32;

/** Plans slices of the columns in `checks.slices` for the first outputs, without vectors. */
export function planSlices(columns: readonly string[], outputs: readonly TypedColumn[]): SlicePlan {
  const chosen = outputs
    .filter(({ type }) => typeof type !== "object" || type.kind === "decimal")
    .map(({ name }) => name)
    .slice(0, mostOutputs);
  const slices = Math.min(mostSlices, Math.floor(mostProfiles / Math.max(1, chosen.length)));
  return { columns, outputs: chosen, values: Math.floor(slices / columns.length) };
}

export function dividesRows(type: ColumnType): boolean {
  return type === "utf8" || type === "bool" || (typeof type === "string" && /^u?int\d+$/.test(type));
}

/** The profiles of the predicted columns, by name, for the rows with one value of a column. */
type SliceColumns = ReadonlyMap<string, ColumnProfile>;

/** Profiles of the rows, grouped by the values of some columns. */
interface SliceProfiles {
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

function mergeSlices(first: SliceProfiles, second: SliceProfiles): SliceProfiles {
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

interface SlicesJson {
  readonly values: number;
  /** null: the column has more values than are profiled. */
  readonly columns: readonly (readonly [string, readonly (readonly [string | null, ColumnsJson])[] | null])[];
}

function slicesJson({ values, columns }: SliceProfiles, limits: JsonLimits): SlicesJson {
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

function parseSlices({ values, columns }: SlicesJson): SliceProfiles {
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

/** By "country=FR": those with enough rows. A smaller one could reveal the prediction for a single person. */
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

/** Keys are texts, and null for NULL. undefined: more than `limit` values, or one is too long. */
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

export const aggregateNames = ["count", "sum", "avg", "min", "max"] as const;
export type AggregateName = (typeof aggregateNames)[number];

/** The profile of an expression over some rows, as numbers; or why it could not be computed for one of them. */
export type AggregateProfile = ColumnProfile | { readonly error: string };

/** The expressions of `checks.sql`, in the order of the conditions. */
export interface Aggregates extends AsyncDisposable {
  /** The profile of an expression that fails for a row is the error. */
  readonly profile: (rows: OutputRows) => Promise<readonly AggregateProfile[]>;
  /** Decides the conditions by the merged profile of a run. `rows`: of its output. */
  results(profile: {
    readonly rows: number;
    readonly aggregates?: readonly AggregateProfile[] | undefined;
  }): Promise<Finding[]>;
}

/** The most bins of these profiles: only their counts, extremes and sums are needed. */
export const aggregateBins = 2;

/** Merges the profiles of equal expressions over different rows. The order of the arguments does not matter. @public so that tests merge aggregates alone */
export function mergeAggregates(
  first: readonly AggregateProfile[],
  second: readonly AggregateProfile[],
): readonly AggregateProfile[] {
  return first.map((profile, index) => {
    const more = second[index] as AggregateProfile;
    if ("error" in profile || "error" in more) {
      const errors = [profile, more].flatMap((each) => ("error" in each ? each.error : []));
      return { error: errors.toSorted()[0] as string }; // whichever was merged first
    }
    return mergeColumns(profile, more, aggregateBins);
  });
}

/** The profiles of expressions as plain JSON. @public so that tests merge aggregates alone */
export function aggregatesJson(aggregates: readonly AggregateProfile[]): readonly ColumnJson[] {
  return aggregates.map((profile) =>
    "error" in profile ? { error: profile.error } : columnJson(profile, { nameBytes: 0, namedRows: 1 }),
  );
}

/** Reads what `aggregatesJson` made. @public so that tests merge aggregates alone */
export function parseAggregates(json: readonly ColumnJson[]): readonly AggregateProfile[] {
  return json.map((each) => (typeof each["error"] === "string" ? { error: each["error"] } : parseColumn(each)));
}

/** The value of an aggregate: null where SQL has NULL, and NaN where a value is NaN. */
export function aggregateValue(name: AggregateName, profile: ColumnProfile): number | null {
  const count = profile.rows - profile.nulls;
  if (name === "count") {
    return count;
  }
  if (count === 0 || profile.kind !== "numbers") {
    return null;
  }
  if (profile.nan > 0) {
    return Number.NaN;
  }
  const [negative, positive] = profile.infinite;
  switch (name) {
    case "min":
      return negative > 0 ? Number.NEGATIVE_INFINITY : profile.min;
    case "max":
      return positive > 0 ? Number.POSITIVE_INFINITY : profile.max;
    case "sum":
      return infiniteSum(profile) ?? profile.sum[0];
    case "avg":
      return infiniteSum(profile) ?? profile.sum[0] / countedRows(profile);
    default:
      return assertNever(name);
  }
}

/** Returns the sum of numbers if at least one of them is infinite; undefined: all are finite. */
function infiniteSum({ infinite: [negative, positive] }: NumberColumn): number | undefined {
  if (negative === 0 && positive === 0) {
    return undefined;
  }
  return positive === 0 ? Number.NEGATIVE_INFINITY : negative === 0 ? Number.POSITIVE_INFINITY : Number.NaN;
}
