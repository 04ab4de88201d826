import { type MatchedColumns, measure, type Measures } from "../checks/agreement/agreement.js";
import type { DifferentRow } from "../checks/agreement/different-rows.js";
import type { AgreementPlan, MissedReason, SpanAgreement } from "../checks/agreement/span-agreement.js";
import type { PlannedChallenger } from "../plan/plan.js";

/** How the challenger of a run agrees with the published predictions. Plain JSON, in which NaN and infinity are null. */
export interface ChallengerResult {
  /** `challenger.path`. */
  readonly model: string;
  readonly sha256: string;
  readonly version?: string | undefined;
  /** Numbers that differ by more are counted. */
  readonly tolerance: number;
  /** Rows that both models scored. */
  readonly compared: number;
  /** Rows of the output for which the challenger has no prediction, by reason. */
  readonly missed: Readonly<Partial<Record<MissedReason, number>>>;
  /** By output column. */
  readonly columns: readonly (readonly [string, Measures])[];
  readonly apart: MatchedColumns["apart"];
}

export function challengerResult(
  { uri: model, sha256, version }: PlannedChallenger,
  { tolerance, apart }: AgreementPlan,
  { compared, missed, columns }: SpanAgreement,
): ChallengerResult {
  return {
    model,
    sha256,
    ...(version === undefined ? {} : { version }),
    tolerance,
    compared,
    missed: Object.fromEntries(missed),
    columns: [...columns].map(([name, column]) => [name, measure(column)]),
    apart,
  };
}

/** Reads a result that was stored as JSON, with NaN and infinity where they were. */
export function reviveChallenger(stored: ChallengerResult): ChallengerResult {
  return { ...stored, columns: stored.columns.map(([name, found]) => [name, reviveMeasures(found)]) };
}

function reviveMeasures(found: Measures): Measures {
  const figures = Object.entries(found).map(([name, value]) => [
    name,
    name !== "flips" && value === null ? Number.NaN : value,
  ]);
  const { most } = found;
  return { ...Object.fromEntries(figures), most: most.map(reviveRow) };
}

function reviveRow(row: DifferentRow): DifferentRow {
  return { ...row, distance: Number.isFinite(row.distance) ? row.distance : Number.POSITIVE_INFINITY };
}
