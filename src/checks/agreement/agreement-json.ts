import { assertNever } from "../../util/errors.js";
import { type ColumnJson, columnJson, type ColumnProfile, type NumberColumn, parseColumn } from "../profile/column.js";
import type { ColumnAgreement, LabelFlips } from "./column-agreement.js";
import type { DifferentRow } from "./different-rows.js";
import type { RankSample } from "./rank-sample.js";
import { type MissedReason, missedReasons, type SpanAgreement } from "./span-agreement.js";
import { packNumbers, packSteps, unpackNumbers, unpackSteps } from "./packed-numbers.js";

/** An agreement as plain JSON; equal agreements have equal texts. */
export interface AgreementJson {
  readonly compared: number;
  readonly missed: Readonly<Partial<Record<MissedReason, number>>>;
  readonly columns: readonly (readonly [string, ColumnJson])[];
}

export function agreementJson({ compared, missed, columns }: SpanAgreement): AgreementJson {
  const counts = missedReasons.flatMap((reason) => {
    const rows = missed.get(reason) ?? 0;
    return rows === 0 ? [] : [[reason, rows] as const];
  });
  return {
    compared,
    missed: Object.fromEntries(counts),
    columns: [...columns].map(([name, column]) => [name, agreementOf(column)]),
  };
}

/** Reads what `agreementJson` made; trusts it to be such. */
export function parseAgreement({ compared, missed, columns }: AgreementJson): SpanAgreement {
  return {
    compared,
    missed: new Map(Object.entries(missed) as [MissedReason, number][]),
    columns: new Map(columns.map(([name, column]) => [name, parseAgreementOf(column)])),
  };
}

function agreementOf(column: ColumnAgreement): ColumnJson {
  const { kind, rows } = column;
  const most = column.most.map(rowJson);
  switch (kind) {
    case "numbers":
      return {
        kind,
        rows,
        beyond: column.beyond,
        differences: profileJson(column.differences),
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
      return { kind, rows, without: column.without, cosines: profileJson(column.cosines), most };
    case "times":
      return { kind, rows, equal: column.equal, largestShift: column.largestShift, most };
    default:
      return assertNever(kind);
  }
}

function parseAgreementOf(json: ColumnJson): ColumnAgreement {
  const { kind, rows } = json as Pick<ColumnAgreement, "kind" | "rows">;
  const most = (json["most"] as readonly RowJson[]).map(parseRow);
  const profileAt = (key: string): ColumnProfile => parseColumn(json[key] as ColumnJson);
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

/** Names of labels, which both models predict, in bytes. */
const nameBytes = 2048;

function profileJson(profile: ColumnProfile): ColumnJson {
  return columnJson(profile, { nameBytes, namedRows: 1 });
}

function parseNumbers(json: unknown): NumberColumn {
  const profile = parseColumn(json as ColumnJson);
  if (profile.kind !== "numbers") {
    throw new RangeError("the agreement of a column has no profile of numbers");
  }
  return profile;
}

/** null: there are too many pairs. */
function flipsJson(flips: LabelFlips): unknown {
  return flips === undefined ? null : [...flips].toSorted(([left], [right]) => (left < right ? -1 : 1));
}

function parseFlips(json: unknown): LabelFlips {
  return json === null ? undefined : new Map(json as readonly (readonly [string, number])[]);
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
