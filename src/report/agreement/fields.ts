import type { DifferentRow, Measures } from "../../checks/agreement.js";
import type { RunComparison } from "../../publish/erasure.js";
import { assertNever } from "../../util/errors.js";

function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}

/**
 * The figures of a column under their JSON names; those that cannot be computed are null.
 * @param rowFields what is known of a row besides its predictions
 */
export function agreementFields(
  found: Measures,
  [a, b]: readonly [one: string, other: string],
  rowFields: (row: DifferentRow) => Readonly<Record<string, unknown>>,
): object {
  const most = found.most.map((row) => ({
    ...rowFields(row),
    [a]: row.one,
    [b]: row.other,
    distance: finite(row.distance),
  }));
  switch (found.kind) {
    case "numbers":
      return {
        kind: "numbers",
        mean_difference: finite(found.meanDifference),
        median_difference: finite(found.medianDifference),
        p90_difference: finite(found.p90Difference),
        p99_difference: finite(found.p99Difference),
        largest_difference: finite(found.largestDifference),
        rows_beyond_tolerance: found.beyond,
        rank_correlation: finite(found.rankCorrelation),
        psi: finite(found.psi),
        most_different: most,
      };
    case "labels": {
      const flips = found.flips.map(({ one, other, rows }) => ({ [a]: one, [b]: other, rows }));
      return { kind: "labels", rows_equal: found.equal, psi: finite(found.psi), flips, most_different: most };
    }
    case "vectors":
      return {
        kind: "vectors",
        mean_cosine: finite(found.meanCosine),
        lowest_cosine: finite(found.lowestCosine),
        rows_without_cosine: found.without,
        most_different: most,
      };
    case "times":
      return {
        kind: "times",
        rows_equal: found.equal,
        largest_shift_seconds: found.largestShift,
        most_different: most,
      };
    default:
      return assertNever(found);
  }
}

/** How both models of a run are called. */
export const modelNames = ["champion", "challenger"] as const;

/** A result under its JSON name; nothing if the run has none. @param withKeys whether rows come with their keys */
export function comparisonFields(
  result: RunComparison | undefined,
  withKeys: boolean,
): { readonly challenger?: object } {
  if (result === undefined) {
    return {};
  }
  const { model, sha256, version, place, tolerance, compared, missed, repeated, columns, apart } = result;
  const fieldsOf = (found: Measures): object =>
    agreementFields(found, modelNames, ({ row, keys }) => ({
      row,
      ...(withKeys && keys !== undefined ? { keys } : {}),
    }));
  return {
    challenger: {
      model,
      sha256,
      version: version ?? null,
      place,
      tolerance,
      rows_compared: compared,
      rows_missed: missed,
      keys_repeated: repeated,
      outputs: Object.fromEntries(columns.map(([name, found]) => [name, fieldsOf(found)])),
      not_compared: Object.fromEntries(apart.map(({ name, reason }) => [name, reason])),
    },
  };
}
