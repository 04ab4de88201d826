import { assertNever } from "../../util/errors.js";
import type { ColumnProfile } from "../profiles/column-profile.js";
import { type ProfileJson, parseProfile, profileJson } from "../profiles/profile-json.js";
import type { NumberProfile } from "../profiles/number-profile.js";
import type { ValueCounts } from "../profiles/value-counts.js";
import type { ColumnAgreement } from "./column-agreement.js";
import type { DifferentRow } from "./different-rows.js";
import type { RankSample } from "./rank-sample.js";
import { type MissedReason, missedReasons, type SpanAgreement } from "./span-agreement.js";
import { packNumbers, packSteps, unpackNumbers, unpackSteps } from "./packed-numbers.js";

/** An agreement as plain JSON; equal agreements have equal texts. */
export interface AgreementJson {
  readonly compared: number;
  readonly missed: Readonly<Partial<Record<MissedReason, number>>>;
  readonly columns: readonly (readonly [string, ProfileJson])[];
}

export function agreementJson({ compared, missed, columns }: SpanAgreement): AgreementJson {
  const counts = missedReasons.flatMap((reason) => {
    const rows = missed.get(reason) ?? 0;
    return rows === 0 ? [] : [[reason, rows] as const];
  });
  return {
    compared,
    missed: Object.fromEntries(counts),
    columns: [...columns].map(([name, column]) => [name, columnJson(column)]),
  };
}

/** Reads what `agreementJson` made; trusts it to be such. */
export function parseAgreement({ compared, missed, columns }: AgreementJson): SpanAgreement {
  return {
    compared,
    missed: new Map(Object.entries(missed) as [MissedReason, number][]),
    columns: new Map(columns.map(([name, column]) => [name, parseColumn(column)])),
  };
}

function columnJson(column: ColumnAgreement): ProfileJson {
  const { kind, rows } = column;
  const most = column.most.map(rowJson);
  switch (kind) {
    case "numbers":
      return {
        kind,
        rows,
        beyond: column.beyond,
        differences: numbersJson(column.differences),
        one: profileJson(column.one),
        other: profileJson(column.other),
        sample: sampleJson(column.sample),
        most,
      };
    case "labels":
      return {
        kind,
        rows,
        equal: column.equal,
        flips: flipsJson(column.flips),
        one: profileJson(column.one),
        other: profileJson(column.other),
        most,
      };
    case "vectors":
      return { kind, rows, without: column.without, cosines: numbersJson(column.cosines), most };
    case "times":
      return { kind, rows, equal: column.equal, largestShift: column.largestShift, most };
    default:
      return assertNever(kind);
  }
}

function parseColumn(json: ProfileJson): ColumnAgreement {
  const { kind, rows } = json as Pick<ColumnAgreement, "kind" | "rows">;
  const most = (json["most"] as readonly RowJson[]).map(parseRow);
  const profileAt = (key: string): ColumnProfile => parseProfile(json[key] as ProfileJson);
  switch (kind) {
    case "numbers":
      return {
        kind,
        rows,
        beyond: json["beyond"] as number,
        differences: parseNumbers(json["differences"]),
        one: profileAt("one"),
        other: profileAt("other"),
        sample: parseSample(json["sample"] as SampleJson),
        most,
      };
    case "labels":
      return {
        kind,
        rows,
        equal: json["equal"] as number,
        flips: parseFlips(json["flips"]),
        one: profileAt("one"),
        other: profileAt("other"),
        most,
      };
    case "vectors":
      return { kind, rows, without: json["without"] as number, cosines: parseNumbers(json["cosines"]), most };
    case "times":
      return { kind, rows, equal: json["equal"] as number, largestShift: json["largestShift"] as number, most };
    default:
      return assertNever(kind);
  }
}

function numbersJson(numbers: NumberProfile): ProfileJson {
  return profileJson({ kind: "numbers", type: "float64", rows: 0, nulls: 0, numbers });
}

function parseNumbers(json: unknown): NumberProfile {
  const profile = parseProfile(json as ProfileJson);
  if (profile.kind !== "numbers") {
    throw new RangeError("the agreement of a column has no profile of numbers");
  }
  return profile.numbers;
}

/** null: there are too many pairs. */
function flipsJson(flips: ValueCounts): unknown {
  return flips.kind === "many" ? null : [...flips.counts].toSorted(([one], [other]) => (one < other ? -1 : 1));
}

function parseFlips(json: unknown): ValueCounts {
  return json === null
    ? { kind: "many", hashed: undefined }
    : { kind: "few", counts: new Map(json as readonly (readonly [string, number])[]) };
}

/** An infinite distance is null. */
type RowJson = readonly [row: number, distance: number | null, one: string, other: string, keys?: DifferentRow["keys"]];

function rowJson({ row, distance, one, other, keys }: DifferentRow): RowJson {
  const base = [row, Number.isFinite(distance) ? distance : null, one, other] as const;
  return keys === undefined ? base : [...base, keys];
}

function parseRow([row, distance, one, other, keys]: RowJson): DifferentRow {
  return { row, distance: distance ?? Number.POSITIVE_INFINITY, one, other, ...(keys === undefined ? {} : { keys }) };
}

interface SampleJson {
  readonly level: number;
  /** The number of the first row; null: there is none. */
  readonly first: number | null;
  /** How far each row is from the one before. */
  readonly steps: string;
  readonly one: string;
  readonly other: string;
}

/** Rows in the order of their numbers, independent of the order in which they were merged. */
function sampleJson({ level, rows, one, other }: RankSample): SampleJson {
  const order = Uint32Array.from(rows, (_row, index) => index).toSorted(
    (a, b) => (rows[a] as number) - (rows[b] as number),
  );
  const sorted = (values: Float64Array): Float64Array => Float64Array.from(order, (index) => values[index] as number);
  const numbers = sorted(rows);
  const steps = packSteps(numbers);
  return { level, first: numbers[0] ?? null, steps, one: packNumbers(sorted(one)), other: packNumbers(sorted(other)) };
}

function parseSample({ level, first, steps, one, other }: SampleJson): RankSample {
  return { level, rows: unpackSteps(first, steps), one: unpackNumbers(one), other: unpackNumbers(other) };
}
