import { type ColumnType, type NamedColumn, showType } from "../../columnar/types.js";
import { assertNever } from "../../util/errors.js";
import { type ColumnProfile, countedRows, meanOf, type NumberColumn, quantileOf } from "../profile/column.js";
import { stabilityOf } from "../rules/shape.js";
import {
  type ColumnAgreement,
  comparableKind,
  compareColumns,
  type LabelFlips,
  mergeColumnAgreements,
} from "./column-agreement.js";
import { type AgreementOptions, type RowNumbers, unboundOptions } from "./prediction-pair.js";
import type { DifferentRow } from "./different-rows.js";
import { rankCorrelation } from "./rank-sample.js";

/** How the predictions of two models agree, by column. */
export type Agreement = ReadonlyMap<string, ColumnAgreement>;

interface TypedColumn {
  readonly name: string;
  readonly type: ColumnType;
}

/** Which columns of two models are compared. */
export interface MatchedColumns {
  readonly compared: readonly string[];
  /** Columns that cannot be compared, with the reason. */
  readonly apart: readonly { readonly name: string; readonly reason: string }[];
}

/**
 * Matches the predicted columns of two models by name. Only columns of comparable types are compared.
 * @param names the models in reasons
 */
export function matchColumns(
  one: readonly TypedColumn[],
  other: readonly TypedColumn[],
  [a, b]: readonly [string, string] = ["A", "B"],
): MatchedColumns {
  const others = new Map(other.map((column) => [column.name, column]));
  const compared: string[] = [];
  const apart: { name: string; reason: string }[] = [];
  for (const { name, type } of one) {
    const match = others.get(name);
    others.delete(name);
    if (match === undefined) {
      apart.push({ name, reason: `only ${a} has it (${showType(type)})` });
    } else if (comparableKind(type, match.type) === undefined) {
      const [typeA, typeB] = [showType(type), showType(match.type)];
      apart.push({ name, reason: typeA === typeB ? `of type ${typeA}` : `${typeA} in ${a}, ${typeB} in ${b}` });
    } else {
      compared.push(name);
    }
  }
  const rest = [...others.values()].map(({ name, type }) => ({ name, reason: `only ${b} has it (${showType(type)})` }));
  return { compared, apart: [...apart, ...rest] };
}

/** Predictions of two models for the same rows. */
export interface ComparedRows {
  /** The numbers of the rows. Each row comes once. */
  readonly rowNumbers: RowNumbers;
  readonly one: readonly NamedColumn[];
  readonly other: readonly NamedColumn[];
}

export interface CompareOptions extends Pick<MatchedColumns, "compared"> {
  /** Numbers that differ by more are counted. */
  readonly tolerance: number;
  /** Default: those of an agreement that is held in memory only. */
  readonly options?: AgreementOptions | undefined;
}

/** Compares the columns that match, of some rows. */
export function compareRows(
  { rowNumbers, one, other }: ComparedRows,
  { compared, tolerance, options = unboundOptions }: CompareOptions,
): Agreement {
  return new Map(
    compared.map((name) => {
      const pair = { one: columnOf(one, name), other: columnOf(other, name) };
      return [name, compareColumns({ rowNumbers, ...pair, tolerance, options })] as const;
    }),
  );
}

function columnOf(columns: readonly NamedColumn[], name: string): NamedColumn {
  const found = columns.find((column) => column.name === name);
  if (found === undefined) {
    throw new RangeError(`rows came without column ${name}`);
  }
  return found;
}

/** Merges the agreement of different rows, in any order. */
export function mergeAgreements(first: Agreement, second: Agreement, options = unboundOptions): Agreement {
  const merged = new Map(first);
  for (const [name, column] of second) {
    const before = merged.get(name);
    merged.set(name, before === undefined ? column : mergeColumnAgreements(before, column, options));
  }
  return merged;
}

/** Figures about the agreement of a column. NaN: there are no rows to compute a figure from. */
export type Measures = { readonly rows: number; readonly most: readonly DifferentRow[] } & (
  | {
      readonly kind: "numbers";
      readonly meanDifference: number;
      /** Quantiles of the absolute differences, to the precision of a histogram's bin. */
      readonly medianDifference: number;
      readonly p90Difference: number;
      readonly p99Difference: number;
      readonly largestDifference: number;
      readonly rankCorrelation: number;
      /** The number of rows that the rank correlation is computed from. */
      readonly rankedRows: number;
      /** Whether these are a sample of the rows. */
      readonly isSampled: boolean;
      readonly psi: number;
      /** The number of rows that differ by more than the tolerance. */
      readonly beyond: number;
    }
  | {
      readonly kind: "labels";
      readonly equal: number;
      readonly psi: number;
      /** The most frequent pair first; undefined: too many pairs differ. */
      readonly flips: readonly Flip[];
    }
  | {
      readonly kind: "vectors";
      readonly meanCosine: number;
      readonly lowestCosine: number;
      /** The number of rows whose vectors differ and have no cosine. */
      readonly without: number;
    }
  | {
      readonly kind: "times";
      readonly equal: number;
      /** By how much two finite dates or times differ at most, in seconds; 0: none do. */
      readonly largestShift: number;
    }
);

export interface Flip {
  readonly one: string;
  readonly other: string;
  readonly rows: number;
}

/** Computes the figures of a column. */
export function measure(column: ColumnAgreement): Measures {
  const { rows, most } = column;
  switch (column.kind) {
    case "numbers": {
      const { differences, sample, beyond } = column;
      return {
        kind: "numbers",
        rows,
        most,
        meanDifference: meanOf(differences),
        medianDifference: differenceAt(differences, 0.5),
        p90Difference: differenceAt(differences, 0.9),
        p99Difference: differenceAt(differences, 0.99),
        largestDifference: countedRows(differences) === 0 ? Number.NaN : differences.max,
        rankCorrelation: rankCorrelation(sample),
        rankedRows: sample.rows.length,
        isSampled: sample.level > 0,
        psi: psiOf(column),
        beyond,
      };
    }
    case "labels":
      return { kind: "labels", rows, most, equal: column.equal, psi: psiOf(column), flips: flipsOf(column.flips) };
    case "vectors": {
      const { cosines, without } = column;
      const lowestCosine = countedRows(cosines) === 0 ? Number.NaN : cosines.min;
      return { kind: "vectors", rows, most, meanCosine: meanOf(cosines), lowestCosine, without };
    }
    case "times":
      return { kind: "times", rows, most, equal: column.equal, largestShift: column.largestShift };
    default:
      return assertNever(column);
  }
}

/** A quantile of differences; NaN if there are none. */
function differenceAt(differences: NumberColumn, share: number): number {
  return quantileOf(differences, share) ?? Number.NaN;
}

function psiOf({ one, other }: { readonly one: ColumnProfile; readonly other: ColumnProfile }): number {
  return stabilityOf(one, other);
}

function flipsOf(flips: LabelFlips): readonly Flip[] {
  if (flips === undefined) {
    return [];
  }
  const named = [...flips].toSorted(([a, m], [b, n]) => n - m || (a < b ? -1 : 1));
  return named.map(([name, rows]) => {
    const [one, other] = JSON.parse(name) as [string, string];
    return { one, other, rows };
  });
}
