import { type NamedColumn, type OutputRows, showType } from "../columnar/types.js";
import { type AggregateProfile, aggregatesJson, mergeAggregates, parseAggregates } from "./aggregates.js";
import { type AgreementJson, agreementJson, parseAgreement } from "./agreement/agreement-json.js";
import { mergeSpanAgreements, type SpanAgreement } from "./agreement/span-agreement.js";
import { featureLimits, measuredOf } from "./features/feature-limits.js";
import { allOutputBytes, divideOutputBytes, featureShare, type MeasuredOutput } from "./output-limits.js";
import {
  type ColumnProfile,
  type ColumnToProfile,
  mergeProfiles,
  profileColumn,
  profiledColumns,
} from "./profiles/column-profile.js";
import type { VectorLimits } from "./profiles/vector-profile.js";
import { type ColumnsJson, columnsJson, parseColumns, type ProfileJson } from "./profiles/profile-json.js";
import { mergeSlices, type SliceProfiles } from "./slices/slice-profiles.js";
import { parseSlices, slicesJson, type SlicesJson } from "./slices/slices-json.js";

/** The profiles of the columns of some rows: of a piece of a span, a span, or a run. */
export interface SpanProfile {
  /** Rows of the output. */
  readonly rows: number;
  /** The bytes that the profiles of the predicted columns share. */
  readonly outputBytes: number;
  /** Profiles of the predicted columns, by name, in the order of the output. At most 32 columns are profiled. */
  readonly columns: ReadonlyMap<string, ColumnProfile>;
  /** The rows and NULLs of the columns that are carried through, by name; of at most 128. */
  readonly carried: ReadonlyMap<string, ColumnProfile>;
  /**
   * Profiles of the columns that the model read, by name, in the model's order; undefined: features are not profiled.
   * They describe a sample of the rows, with counts of all rows, and include rejected rows.
   */
  readonly features?: ReadonlyMap<string, ColumnProfile> | undefined;
  /** Profiles of the rows that share a value of a column of `checks.slices`; undefined: the run has none. */
  readonly slices?: SliceProfiles | undefined;
  /** Set if the features and slices of some of the rows are sealed and were not opened: the profile then has none. */
  readonly isSealed?: true | undefined;
  /** Profiles of the expressions of `checks.sql`; undefined: the run has none. */
  readonly aggregates?: readonly AggregateProfile[] | undefined;
  /** How the challenger agrees with the champion; undefined: the run has no challenger. */
  readonly agreement?: SpanAgreement | undefined;
}

/**
 * A column that the model predicts. `isKey`: its values identify rows, so its profile contains no values. `list`: rows with
 * other values are counted.
 */
export interface PredictedColumn extends Pick<NamedColumn, "name">, Omit<ColumnToProfile, "type"> {}

/** The columns of an output that are profiled, in order. */
export interface ProfiledOutput {
  readonly predicted: readonly PredictedColumn[];
  /** The names of those that come from the input as they are; default: none. */
  readonly carried?: readonly string[];
  /** The bytes that the profiles of the predicted columns share; default: all, as where no features are profiled. */
  readonly bytes?: number | undefined;
}

/** Carried columns whose rows and NULLs are counted. Their JSON has about 70 bytes and a name each. */
export const carriedColumns = 128;

/** Profiles the columns of rows. `features`: the features of the rows. */
export function profileRows(
  { rowCount, columns }: OutputRows,
  { predicted, carried = [], bytes: outputBytes = allOutputBytes }: ProfiledOutput,
  features?: SpanProfile["features"],
): SpanProfile {
  const known = predicted.slice(0, profiledColumns);
  const names = new Set(known.map(({ name }) => name));
  const measured = columns
    .filter(({ name }) => names.has(name))
    .map(({ name, type }) => ({ name, type: showType(type) }));
  const limits = limitsOf(measured, outputBytes);
  const profilesOf = (wanted: readonly PredictedColumn[]): Map<string, ColumnProfile> => {
    const byName = new Map(wanted.map((column) => [column.name, column]));
    const profiles = columns.flatMap(({ name, type, column }) => {
      const about = byName.get(name);
      return about === undefined ? [] : [[name, profileColumn({ type, ...about }, column, limits(name))] as const];
    });
    return new Map(profiles);
  };
  return {
    rows: rowCount,
    outputBytes,
    columns: profilesOf(known),
    carried: profilesOf(carried.slice(0, carriedColumns).map((name) => ({ name, isKey: true }))),
    ...(features === undefined ? {} : { features }),
  };
}

/** The profile of a run without spans. */
export const noRows: SpanProfile = { rows: 0, outputBytes: allOutputBytes, columns: new Map(), carried: new Map() };

/**
 * Merges the profiles of rows of one output. The result does not depend on how the rows were divided, nor on the order
 * of merging.
 */
export function mergeSpanProfiles(one: SpanProfile, other: SpanProfile): SpanProfile {
  const outputBytes = Math.min(one.outputBytes, other.outputBytes); // spans of one run share it
  const features =
    one.features === undefined || other.features === undefined
      ? undefined
      : mergeFeatures(one.features, other.features, featureShare(outputBytes));
  const isSealed = one.isSealed ?? other.isSealed;
  const measured = [...one.columns].map(([name, { type }]) => ({ name, type }));
  const limits = limitsOf(measured, outputBytes);
  const columns = mergeColumns(one.columns, other.columns, limits);
  const carried = mergeColumns(one.carried, other.carried, limits);
  const slices =
    one.slices === undefined || other.slices === undefined ? undefined : mergeSlices(one.slices, other.slices);
  const aggregates =
    one.aggregates === undefined || other.aggregates === undefined
      ? undefined
      : mergeAggregates(one.aggregates, other.aggregates);
  const agreement =
    one.agreement === undefined || other.agreement === undefined
      ? undefined
      : mergeSpanAgreements(one.agreement, other.agreement);
  return {
    rows: one.rows + other.rows,
    outputBytes,
    columns,
    carried,
    ...(features === undefined ? {} : { features }),
    ...(slices === undefined ? {} : { slices }),
    ...(isSealed && { isSealed }),
    ...(aggregates === undefined ? {} : { aggregates }),
    ...(agreement === undefined ? {} : { agreement }),
  };
}

type Columns = SpanProfile["columns"];

type LimitsOf = (name: string) => VectorLimits;

function mergeColumns(one: Columns, other: Columns, limitsOfColumn: LimitsOf): Columns {
  const columns = new Map(one);
  for (const [name, profile] of other) {
    const before = columns.get(name);
    columns.set(name, before === undefined ? profile : mergeProfiles(before, profile, limitsOfColumn(name)));
  }
  return columns;
}

function mergeFeatures(one: Columns, other: Columns, bytes: number): Columns {
  const limits = featureLimits([...one].map(measuredOf), bytes);
  const byName = new Map([...one.keys()].map((name, index) => [name, limits[index] as VectorLimits]));
  return mergeColumns(one, other, (name) => byName.get(name) ?? noLimits);
}

/**
 * Returns the limits of each predicted column's profile. All profiles of a span share 64 KiB of JSON; more than 20 vectors of
 * doubles need up to 90 KiB, since each has exact sums of large numbers.
 */
function limitsOf(outputs: readonly MeasuredOutput[], outputBytes: number): LimitsOf {
  const limits = divideOutputBytes(outputs, outputBytes);
  const byName = new Map(outputs.map(({ name }, index) => [name, limits[index] as VectorLimits]));
  return (name) => byName.get(name) ?? noLimits;
}

/** Of columns whose rows and NULLs are counted, and nothing else. */
const noLimits: VectorLimits = { bins: 2, values: 0, nameBytes: 0, dimensions: 1 };

/**
 * The part of a profile that others may read, as JSON of at most 64 KiB, the names of its columns, 10 KiB for carried
 * columns, and 64 KiB for the challenger's agreement; equal profiles have equal texts.
 */
export function spanProfileText({ rows, outputBytes, columns, carried, aggregates, agreement }: SpanProfile): string {
  return JSON.stringify({
    rows,
    output_bytes: outputBytes,
    columns: columnsJson(columns),
    carried: columnsJson(carried),
    aggregates: aggregates && aggregatesJson(aggregates),
    agreement: agreement && agreementJson(agreement),
  });
}

/**
 * The part of a profile that names rare values, and slices of few rows: features and slices, as JSON; equal profiles have
 * equal texts. undefined: the run profiles neither.
 */
function privateProfileText({ features, slices }: SpanProfile): string | undefined {
  return features === undefined && slices === undefined
    ? undefined
    : JSON.stringify({ features: features && columnsJson(features), slices: slices && slicesJson(slices) });
}

/** Both parts of a profile, as a span's output has them. */
export function spanProfileTexts(profile: SpanProfile): {
  readonly profile: string;
  readonly privateProfile: string | undefined;
} {
  return { profile: spanProfileText(profile), privateProfile: privateProfileText(profile) };
}

/** Adds the private part, which is sealed, to what `spanProfileText` wrote. */
export function withSealed(text: string, sealed: string): string {
  return `${text.slice(0, -1)},"sealed":${JSON.stringify(sealed)}}`;
}

interface PrivateJson {
  readonly features?: ColumnsJson;
  readonly slices?: SlicesJson;
}

interface SpanProfileJson {
  readonly rows: number;
  readonly output_bytes: number;
  readonly columns: ColumnsJson;
  readonly carried: ColumnsJson;
  readonly aggregates?: readonly ProfileJson[];
  readonly agreement?: AgreementJson;
  /** Features and slices. */
  readonly sealed?: string;
}

/** The profile of a span as it is stored. */
export interface StoredProfile {
  /** Without features and slices if they are sealed. */
  readonly profile: SpanProfile;
  /** The sealed private part, which `withPrivatePart` takes once it is opened; undefined: nothing is sealed. */
  readonly sealed: string | undefined;
}

/** Reads what `spanProfileText` wrote, or `withSealed`; trusts the text to be such. */
export function parseSpanProfile(text: string): StoredProfile {
  const json = JSON.parse(text) as SpanProfileJson;
  const { rows, output_bytes: outputBytes, columns, carried, sealed, aggregates, agreement } = json;
  const profile = {
    rows,
    outputBytes,
    columns: parseColumns(columns),
    carried: parseColumns(carried),
    ...(sealed === undefined ? {} : { isSealed: true as const }),
    ...(aggregates === undefined ? {} : { aggregates: parseAggregates(aggregates) }),
    ...(agreement === undefined ? {} : { agreement: parseAgreement(agreement) }),
  };
  return { profile, sealed };
}

/** Adds features and slices to a profile that has none. `text`: what `privateProfileText` wrote. */
export function withPrivatePart(profile: SpanProfile, text: string): SpanProfile {
  const { features, slices } = JSON.parse(text) as PrivateJson;
  return {
    ...profile,
    isSealed: undefined,
    ...(features === undefined ? {} : { features: parseColumns(features) }),
    ...(slices === undefined ? {} : { slices: parseSlices(slices) }),
  };
}

/** Changes the agreement with the challenger in a text that `parseSpanProfile` reads, and nothing else. */
export function withAgreement(text: string, change: (agreement: SpanAgreement) => SpanAgreement): string {
  const json = JSON.parse(text) as SpanProfileJson;
  const { agreement } = json;
  return agreement === undefined
    ? text
    : JSON.stringify({ ...json, agreement: agreementJson(change(parseAgreement(agreement))) });
}
