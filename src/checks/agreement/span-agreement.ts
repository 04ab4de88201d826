import { type NamedColumn, showType } from "../../columnar/types.js";
import { type Agreement, matchColumns, type MatchedColumns, mergeAgreements } from "./agreement.js";
import type { AgreementOptions } from "./prediction-pair.js";
import { levelFor, sampledRows } from "./rank-sample.js";

/** How the challenger agrees with the champion on the output rows of a piece of a span, a span, or a run. */
export interface SpanAgreement {
  /** Rows that both models scored. */
  readonly compared: number;
  /** Rows of the output for which the challenger has no prediction, by reason. */
  readonly missed: ReadonlyMap<MissedReason, number>;
  /** The columns that both models predict. */
  readonly columns: Agreement;
}

/**
 * Why the challenger has no prediction for a row. `missing`: a feature is NULL or does not fit its input; `not_running`:
 * the challenger had stopped working in this attempt.
 */
export const missedReasons = [
  "missing",
  "not_finite",
  "too_long",
  "expression_failed",
  "prediction_not_finite",
  "model_failed",
  "not_running",
] as const;

export type MissedReason = (typeof missedReasons)[number];

/** What is compared, and how much is stored of it for each span. */
export interface AgreementPlan extends MatchedColumns {
  /** Numbers that differ by more are counted. */
  readonly tolerance: number;
  readonly options: AgreementOptions;
}

/** Columns that are compared: of more, too little could be stored of each. */
const comparedColumns = 8;
/** JSON of the profiles of a span's agreement, in bytes. */
const profileBytes = 30 * 1024;
/** JSON of the sample of a span's rows, in bytes. */
const sampleBytes = 16 * 1024;

/** Chooses what is compared. The choice depends on the plan of the run alone, so that agreements of its spans can be merged. */
export function planAgreement(
  champion: readonly Pick<NamedColumn, "name" | "type">[],
  challenger: readonly Pick<NamedColumn, "name" | "type">[],
  { rows, spanRows, tolerance }: { readonly rows: number; readonly spanRows: number; readonly tolerance: number },
): AgreementPlan {
  const matched = matchColumns(champion, challenger, ["the champion", "the challenger"]);
  const compared = matched.compared.slice(0, comparedColumns);
  const left = matched.compared.slice(comparedColumns);
  const apart = [
    ...matched.apart,
    ...left.map((name) => ({ name, reason: `only the first ${comparedColumns} columns are compared` })),
  ];
  const types = champion.flatMap(({ name, type }) => (compared.includes(name) ? [showType(type)] : []));
  const bytesOf: Readonly<Record<string, number>> = { float64: 28, float32: 17 }; // only numbers are ranked
  const rowBytes = types.reduce((sum, type) => sum + (bytesOf[type] ?? 0), 0);
  const ofSpan = levelFor(Math.min(rows, spanRows), Math.floor(sampleBytes / Math.max(1, rowBytes)));
  const level = Math.max(ofSpan, levelFor(rows, sampledRows));
  return { compared, apart, tolerance, options: { ...limitsOf(compared.length), level } };
}

/** Pairs of labels that are counted for a column, if their names are short enough. */
const mostFlips = 256;
/** JSON of a bin of a histogram, in bytes. */
const binBytes = 12;

/**
 * Each column has three profiles of the same size. Of labels, the third one is the counts of pairs, which have no histogram
 * beside them: their names may take all of it.
 */
function limitsOf(columns: number): Pick<AgreementOptions, "bins" | "flips"> {
  const bytes = Math.floor(profileBytes / Math.max(3 * columns, 1));
  return { bins: Math.min(400, Math.floor(bytes / binBytes)), flips: { pairs: mostFlips, nameBytes: bytes } };
}

/** The agreement of rows for which the challenger has no prediction. */
export function missedRows(missed: SpanAgreement["missed"]): SpanAgreement {
  return { compared: 0, missed, columns: new Map() };
}

/** Merges the agreement of different rows of one run, in any order. */
export function mergeSpanAgreements(one: SpanAgreement, other: SpanAgreement): SpanAgreement {
  const missed = new Map(one.missed);
  for (const [reason, rows] of other.missed) {
    missed.set(reason, (missed.get(reason) ?? 0) + rows);
  }
  const limits = limitsOf(Math.max(one.columns.size, other.columns.size));
  return {
    compared: one.compared + other.compared,
    missed,
    columns: mergeAgreements(one.columns, other.columns, { ...limits, level: 0 }),
  };
}
