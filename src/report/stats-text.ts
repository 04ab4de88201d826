import type { RunProfile } from "../checks/profile/run-profile.js";
import { type ColumnStats, type UsualStats, columnStats, median, usualStats } from "./column-stats.js";
import { agreementTables, comparedRows, comparisonFields } from "./agreement.js";
import { modelNames } from "../checks/agreement.js";
import type { RunComparison } from "../run/lifecycle/erasure.js";
import { shownValue, withDigits, percent, count } from "../base/shown-numbers.js";
import { fitTable } from "./table.js";

/** The profiles of a run, with its state. */
export interface RunStats {
  readonly profile: RunProfile;
  /** The last published runs of earlier dates, the latest last: what is usual. None where the run has no date. */
  readonly earlier: readonly RunProfile[];
  /** How a second model agrees; undefined: the run has none, or they are not compared. */
  readonly comparison?: RunComparison | undefined;
  /** The state of the run, such as "published" or "held". */
  readonly state: string;
}

/** Returns the profiles as JSON. */
export function statsJson({ profile, earlier, state, comparison }: RunStats): object {
  const { runId, date, modelSha256, rows, rejected, filtered, features } = profile;
  const columns = (which: Columns): object =>
    Object.fromEntries(
      statsOf(which, profile, earlier).map(({ name, stats, usual }) => [name, { ...stats, usual: usual ?? null }]),
    );
  return {
    run_id: runId,
    status: state,
    date: date === "" ? null : date,
    model_sha256: modelSha256,
    rows,
    rejected,
    filtered: filtered ?? null,
    earlier: earlier.map((run) => ({ run_id: run.runId, date: run.date, rows: run.rows })),
    outputs: columns("outputs"),
    carried: columns("carried"),
    features: features.size === 0 ? null : columns("features"),
    ...comparisonFields(comparison, true),
  };
}

/**
 * Returns tables of the predicted columns, of those that are carried through, and of the features.
 * @param width characters in a line of the terminal; undefined: there is none
 */
export function statsText({ profile, earlier, state, comparison }: RunStats, width?: number): string[] {
  const { runId, rows, rejected, filtered = 0, carried, features } = profile;
  const sampled = Math.max(0, ...[...features.values()].map((column) => column.rows));
  const about = sampled >= rows + rejected ? "" : `, in a sample of ${count(sampled, "row")}`;
  const left = filtered === 0 ? "" : `, ${count(filtered, "row")} filtered out`;
  return [
    `${runId}: ${state}, ${count(rows, "row")} scored, ${count(rejected, "row")} rejected${left}`,
    ...usualText(earlier),
    "predictions",
    ...lines(statsOf("outputs", profile, earlier), width),
    ...(carried.size === 0
      ? []
      : ["carried through from the input", ...carriedLines(statsOf("carried", profile, earlier), width)]),
    features.size === 0
      ? `features: not profiled, because ${rows === 0 ? "no row was scored" : "the run was planned without checks"}`
      : `features${about}`,
    ...lines(statsOf("features", profile, earlier), width),
    ...(comparison === undefined
      ? []
      : [
          `${modelNames[1]} ${comparison.model}: ${comparedRows(comparison)}`,
          ...agreementTables(comparison, modelNames, width),
        ]),
  ];
}

function usualText(earlier: readonly RunProfile[]): string[] {
  const [first, last] = [earlier[0], earlier.at(-1)];
  if (first === undefined || last === undefined) {
    return [];
  }
  const dates = first === last ? first.date : `${first.date} to ${last.date}`;
  const usual = count(Math.round(median(earlier.map(({ rows }) => rows)) ?? 0), "row");
  return [`usual is the median of ${count(earlier.length, "published night")}, ${dates}: ${usual}`];
}

type Columns = "outputs" | "carried" | "features";

interface NamedStats {
  readonly name: string;
  readonly stats: ColumnStats;
  /** undefined: no earlier night has this column. */
  readonly usual: UsualStats | undefined;
}

function statsOf(which: Columns, tonight: RunProfile, earlier: readonly RunProfile[]): NamedStats[] {
  return [...tonight[which]].map(([name, profile]) => {
    const nights = earlier.flatMap((run) => run[which].get(name) ?? []);
    return { name, stats: columnStats(profile), usual: usualStats(profile, nights) };
  });
}

interface TableColumn {
  readonly heading: string;
  readonly cell: (column: NamedStats) => string;
}

const nullColumns: readonly TableColumn[] = [
  { heading: "column", cell: ({ name }) => name },
  { heading: "type", cell: ({ stats }) => stats.type },
  { heading: "NULL", cell: ({ stats: { nulls, rows } }) => share(nulls, rows) },
  { heading: "usual NULL", cell: ({ usual }) => percent(usual?.null_share ?? "") },
];
const numberColumns: readonly TableColumn[] = [
  ...nullColumns,
  { heading: "NaN", cell: ({ stats: { numbers, rows } }) => (numbers === undefined ? "" : share(numbers.nan, rows)) },
  { heading: "min", cell: ({ stats: { numbers } }) => showValue(numbers?.min) },
  { heading: "p10", cell: ({ stats: { numbers } }) => showValue(numbers?.quantiles["p10"]) },
  { heading: "p50", cell: ({ stats: { numbers } }) => showValue(numbers?.quantiles["p50"]) },
  { heading: "usual p50", cell: ({ usual }) => showValue(usual?.numbers?.quantiles["p50"]) },
  { heading: "p90", cell: ({ stats: { numbers } }) => showValue(numbers?.quantiles["p90"]) },
  { heading: "max", cell: ({ stats: { numbers } }) => showValue(numbers?.max) },
  { heading: "mean", cell: ({ stats: { numbers } }) => showValue(numbers?.mean) },
  { heading: "deviation", cell: ({ stats: { numbers } }) => showValue(numbers?.deviation) },
  { heading: "most frequent values", cell: detail },
];
/** The columns of the table that a narrow terminal does without, the least important first. */
const dispensable = ["deviation", "type", "p10", "p90", "NaN", "usual NULL", "mean"];

function carriedLines(stats: readonly NamedStats[], width: number | undefined): string[] {
  return fitTable(cellsOf(nullColumns, stats), { right: [2, 3], width });
}

function lines(stats: readonly NamedStats[], width: number | undefined): string[] {
  if (stats.length === 0) {
    return [];
  }
  const rows = cellsOf(numberColumns, stats);
  const headings = rows[0] ?? [];
  const right = [...headings.keys()].slice(2, -1);
  const leaveOut = dispensable.map((heading) => headings.indexOf(heading)).filter((index) => index >= 0);
  return fitTable(rows, { right, width, leaveOut, hasNotes: true });
}

/** Without what is usual where no earlier night is known. */
function cellsOf(columns: readonly TableColumn[], stats: readonly NamedStats[]): string[][] {
  const isKnown = stats.some(({ usual }) => usual !== undefined);
  const shown = columns.filter(({ heading }) => isKnown || !heading.startsWith("usual"));
  return [shown.map(({ heading }) => heading), ...stats.map((column) => shown.map(({ cell }) => cell(column)))];
}

const shownValues = 3;

function detail({ stats: { rows, values = [], vectors }, usual }: NamedStats): string {
  if (vectors !== undefined) {
    const { min_dimension: least, max_dimension: most, zero, norms } = vectors;
    const dimensions = least === most ? `${most}` : `${least} to ${most}`;
    const before = usual?.norms?.["p50"] === undefined ? "" : ` (usually ${showValue(usual.norms["p50"])})`;
    return `${dimensions} dimensions, median norm ${showValue(norms["p50"])}${before}, ${share(zero, rows)} zero`;
  }
  return values
    .slice(0, shownValues)
    .map(({ value, rows: of }, index) => {
      const before = percent(usual?.values?.[index]?.share ?? "");
      return `${shownValue(value)} (${share(of, rows)}${before === "" ? "" : `, usually ${before}`})`;
    })
    .join(", ");
}

function share(part: number, rows: number): string {
  return rows === 0 ? "" : percent(part / rows);
}

/** Four significant digits; a whole part below 10^15 with all digits. */
function showValue(value: number | null | undefined): string {
  return value === null || value === undefined ? "" : withDigits(value, 4);
}
