import type { DifferentRow, MatchedColumns, Measures } from "../checks/agreement.js";
import { isRecord } from "../util/checks.js";

/** How a second model agrees with the predictions of a run. Plain JSON, in which NaN and infinity are null. Created once. */
export interface RunComparison {
  /** The second model as the spec names it. */
  readonly model: string;
  readonly sha256: string;
  readonly version?: string | undefined;
  /** Where its predictions are. */
  readonly place: string;
  /** Numbers that differ by more are counted. */
  readonly tolerance: number;
  /** Rows that both models scored. */
  readonly compared: number;
  /** Rows that only the second model rejected, by reason. */
  readonly missed: Readonly<Record<string, number>>;
  /** Keys with several rows, which are not compared; 0 where rows are joined by their numbers. */
  readonly repeated: number;
  /** By output column. */
  readonly columns: readonly (readonly [string, Measures])[];
  readonly apart: MatchedColumns["apart"];
}

/** Reads a result that was stored as JSON, with NaN and infinity where they were; undefined for anything else. */
export function parseRunComparison(json: unknown): RunComparison | undefined {
  if (!isRecord(json) || !Array.isArray(json["columns"]) || typeof json["compared"] !== "number") {
    return undefined;
  }
  const stored = json as unknown as RunComparison;
  return { ...stored, columns: stored.columns.map(([name, measures]) => [name, reviveMeasures(measures)]) };
}

function reviveMeasures(stored: Measures): Measures {
  const figures = Object.entries(stored).map(([name, value]) => [name, value === null ? Number.NaN : value]);
  return { ...Object.fromEntries(figures), most: stored.most.map(reviveRow) };
}

function reviveRow(row: DifferentRow): DifferentRow {
  return { ...row, distance: Number.isFinite(row.distance) ? row.distance : Number.POSITIVE_INFINITY };
}

/** Without the rows that differ most, whose keys name persons. */
export function withoutRows(result: RunComparison): RunComparison {
  return { ...result, columns: result.columns.map(([name, measures]) => [name, { ...measures, most: [] }]) };
}
