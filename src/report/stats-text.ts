import type { ColumnProfiles, RunProfile } from "../checks/profile/run-profile.js";
import { type ColumnStats, columnStats } from "./column-stats.js";
import type { ChallengerResult } from "../publish/challenger-result.js";
import { challengerTables } from "./agreement/challenger-text.js";
import { challengerFields } from "./agreement/fields.js";
import { shownValue, withDigits } from "../util/shown-numbers.js";
import { count } from "./report.js";
import { fitTable } from "./table.js";

/** The profiles of a run, with its state. */
export interface RunStats {
  readonly profile: RunProfile;
  /** How the challenger agrees; undefined: the run has none, or it is no longer known. */
  readonly challenger?: ChallengerResult | undefined;
  /** The state of the run, such as "published" or "held". */
  readonly state: string;
}

/** Returns the profiles as one line of JSON. */
export function statsJson({ profile, state, challenger }: RunStats): string {
  const { runId, date, modelSha256, rows, rejected, filtered, outputs, carried, features } = profile;
  return JSON.stringify({
    run_id: runId,
    status: state,
    date: date === "" ? null : date,
    model_sha256: modelSha256,
    rows,
    rejected,
    filtered: filtered ?? null,
    outputs: Object.fromEntries(statsOf(outputs)),
    carried: Object.fromEntries(statsOf(carried)),
    features: features.size === 0 ? null : Object.fromEntries(statsOf(features)),
    ...(challenger === undefined ? {} : { challenger: challengerFields(challenger, true) }),
  });
}

/**
 * Returns tables of the predicted columns, of those that are carried through, and of the features.
 * @param width characters in a line of the terminal; undefined: there is none
 */
export function statsText({ profile, state, challenger }: RunStats, width?: number): string {
  const { runId, rows, rejected, filtered = 0, outputs, carried, features } = profile;
  const outputStats = statsOf(outputs);
  const featureStats = statsOf(features);
  const sampled = Math.max(0, ...featureStats.map(([, stats]) => stats.rows));
  const about = sampled >= rows + rejected ? "" : `, in a sample of ${count(sampled, "row")}`;
  const left = filtered === 0 ? "" : `, ${count(filtered, "row")} filtered out`;
  return [
    `${runId}: ${state}, ${count(rows, "row")} scored, ${count(rejected, "row")} rejected${left}`,
    "predictions",
    ...lines(outputStats, width),
    ...(carried.size === 0 ? [] : ["carried through from the input", ...carriedLines(carried, width)]),
    features.size === 0
      ? `features: not profiled, because ${rows === 0 ? "no row was scored" : "the run was planned without checks"}`
      : `features${about}`,
    ...lines(featureStats, width),
    ...(challenger === undefined ? [] : challengerTables(challenger, width)),
  ].join("\n");
}

function statsOf(columns: ColumnProfiles): (readonly [string, ColumnStats])[] {
  return [...columns].map(([name, profile]) => [name, columnStats(profile)]);
}

function carriedLines(carried: ColumnProfiles, width: number | undefined): string[] {
  const rows = [...carried].map(([name, { type, nulls, rows: all }]) => [name, type, share(nulls, all)]);
  return fitTable([["column", "type", "NULL"], ...rows], { right: [2], width });
}

const numberHeadings = ["NaN", "min", "p10", "p50", "p90", "max", "mean", "deviation"];
const headings = ["column", "type", "NULL", ...numberHeadings, "most frequent values"];
const right = headings.slice(2, -1).map((_, index) => index + 2);
/** The columns of the table that a narrow terminal does without, the least important first. */
const leaveOut = ["deviation", "type", "p10", "p90", "NaN", "mean"].map((heading) => headings.indexOf(heading));

function lines(stats: readonly (readonly [string, ColumnStats])[], width: number | undefined): string[] {
  return stats.length === 0
    ? []
    : fitTable([headings, ...stats.map(cells)], { right, width, leaveOut, hasNotes: true });
}

function cells([name, stats]: readonly [string, ColumnStats]): string[] {
  const { type, rows, nulls, numbers } = stats;
  const { p10, p50, p90 } = numbers?.quantiles ?? {};
  const shown =
    numbers === undefined
      ? numberHeadings.map(() => "")
      : [
          share(numbers.nan, rows),
          ...[numbers.min, p10, p50, p90, numbers.max, numbers.mean, numbers.deviation].map(showValue),
        ];
  return [name, type, share(nulls, rows), ...shown, detail(stats)];
}

/** The number of values that the table shows for a column. */
const shownValues = 3;

function detail({ rows, values = [], vectors }: ColumnStats): string {
  if (vectors !== undefined) {
    const { min_dimension: least, max_dimension: most, zero, norms } = vectors;
    const dimensions = least === most ? `${most}` : `${least} to ${most}`;
    return `${dimensions} dimensions, median norm ${showValue(norms["p50"])}, ${share(zero, rows)} zero`;
  }
  return values
    .slice(0, shownValues)
    .map(({ value, rows: of }) => `${shownValue(value)} (${share(of, rows)})`)
    .join(", ");
}

function share(part: number, rows: number): string {
  return rows === 0 ? "" : part === 0 ? "0%" : `${Number(((part / rows) * 100).toPrecision(3))}%`;
}

/** Shows a number with four significant digits; a whole part below 10^15 with all digits. */
function showValue(value: number | null | undefined): string {
  if (value === null || value === undefined) {
    return "";
  }
  return withDigits(value, 4);
}
