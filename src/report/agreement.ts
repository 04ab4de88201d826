import type { DifferentRow, Measures } from "../checks/agreement.js";
import { timeText, withNanos } from "../columnar/dates-and-times.js";
import type { RunComparison } from "../publish/run-comparison.js";
import { assertNever } from "../util/errors.js";
import { count, withSeparators as showCount } from "../util/shown-numbers.js";
import { fitTable, sameValueFirst } from "./table.js";

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

/** How the two models are called. */
export type Names = readonly [one: string, other: string];

/** How two models agree, for people. */
export interface ShownAgreement {
  readonly columns: ReadonlyMap<string, Measures>;
  readonly tolerance: number;
  readonly names: Names;
  /** Characters in a line of the terminal; undefined: there is none. */
  readonly width?: number | undefined;
  /** What tells whose row it is, by column; undefined: the number of the row is shown. */
  readonly keysOf: (row: DifferentRow) => Readonly<Record<string, string | null>> | undefined;
}

type Named<K extends Measures["kind"]> = readonly [string, Extract<Measures, { kind: K }>];

function ofKind<K extends Measures["kind"]>(columns: ShownAgreement["columns"], kind: K): Named<K>[] {
  return [...columns].flatMap(([name, found]) =>
    found.kind === kind ? [[name, found as Extract<Measures, { kind: K }>] as const] : [],
  );
}

/** The figures of all columns as tables. */
export function agreementTables({ columns, tolerance, names, width }: Omit<ShownAgreement, "keysOf">): string[] {
  const numbers = ofKind(columns, "numbers");
  const labels = ofKind(columns, "labels");
  const vectors = ofKind(columns, "vectors");
  const times = ofKind(columns, "times");
  return [
    ...(numbers.length === 0 ? [] : numberLines(numbers, { tolerance, width })),
    ...(labels.length === 0 ? [] : labelLines(labels, { names, width })),
    ...(vectors.length === 0 ? [] : vectorLines(vectors, width)),
    ...(times.length === 0 ? [] : timeLines(times, width)),
  ];
}

/** Columns that are not compared, with the reason. */
export function apartTable(
  apart: readonly { readonly name: string; readonly reason: string }[],
  width?: number,
): string[] {
  const rows = apart.map(({ name, reason }) => [name, reason]);
  return apart.length === 0 ? [] : ["not compared", ...fitTable(rows, { width, hasNotes: true })];
}

/** The rows that differ most, a table for each column. */
export function differentRowTables(shown: ShownAgreement): string[] {
  return [...shown.columns].flatMap(([name, measures]) => differentLines(shown, name, measures));
}

/** The figures of a column in one line. */
export function agreementLine(found: Measures, tolerance: number): string {
  switch (found.kind) {
    case "numbers":
      return [
        `mean difference ${shownFigure(found.meanDifference)}`,
        `p99 ${shownFigure(found.p99Difference)}`,
        `largest ${shownFigure(found.largestDifference)}`,
        `${share(found.beyond, found.rows)} of the rows differ by more than ${tolerance}`,
        `rank correlation ${shownFigure(found.rankCorrelation)}`,
        `PSI ${shownFigure(found.psi)}`,
      ].join(", ");
    case "labels":
      return `${share(found.equal, found.rows)} of the rows equal, PSI ${shownFigure(found.psi)}`;
    case "vectors":
      return `mean cosine ${shownFigure(found.meanCosine)}, lowest ${shownFigure(found.lowestCosine)}`;
    case "times":
      return `${share(found.equal, found.rows)} of the rows equal, largest shift ${showShift(found.largestShift)}`;
    default:
      return assertNever(found);
  }
}

function shownFigure(value: number): string {
  return figure(value) || "unknown";
}

/** Of the figures, a narrow terminal may do without these, the least important first. */
const dispensable = ["p90", "median", "rank correlation", "p99", "PSI", "mean difference", "largest"];

function numberLines(
  columns: readonly Named<"numbers">[],
  { tolerance, width }: Pick<ShownAgreement, "tolerance" | "width">,
): string[] {
  const head = [
    "column",
    "mean difference",
    "median",
    "p90",
    "p99",
    "largest",
    `rows beyond ${tolerance}`,
    "rank correlation",
    "PSI",
  ];
  const rows = columns.map(([name, found]) => [
    name,
    figure(found.meanDifference),
    figure(found.medianDifference),
    figure(found.p90Difference),
    figure(found.p99Difference),
    figure(found.largestDifference),
    share(found.beyond, found.rows),
    figure(found.rankCorrelation),
    figure(found.psi),
  ]);
  return [
    "numbers",
    ...fitTable([head, ...rows], {
      right: [1, 2, 3, 4, 5, 6, 7, 8],
      width,
      leaveOut: dispensable.map((name) => head.indexOf(name)),
    }),
  ];
}

const shownFlips = 10;

function labelLines(
  columns: readonly Named<"labels">[],
  { names, width }: Pick<ShownAgreement, "names" | "width">,
): string[] {
  const rows = columns.map(([name, found]) => [name, share(found.equal, found.rows), figure(found.psi)]);
  const flips = columns.flatMap(([name, found]) => {
    const lines = found.flips
      .slice(0, shownFlips)
      .map(({ one, other, rows: flipped }) => [name, one, other, showCount(flipped)]);
    return found.flips.length > shownFlips ? [...lines, [name, "more pairs", "", ""]] : lines;
  });
  return [
    "labels",
    ...fitTable([["column", "equal", "PSI"], ...rows], { right: [1, 2], width, leaveOut: [2] }),
    ...(flips.length === 0
      ? []
      : [
          "labels that differ",
          ...fitTable([["column", ...names, "rows"], ...flips], {
            right: [3],
            width,
            leaveOut: columns.length === 1 ? [0, 3] : [3],
          }),
        ]),
  ];
}

function vectorLines(columns: readonly Named<"vectors">[], width: number | undefined): string[] {
  const rows = columns.map(([name, { meanCosine, lowestCosine, without }]) => [
    name,
    figure(meanCosine),
    figure(lowestCosine),
    showCount(without),
  ]);
  return [
    "vectors",
    ...fitTable([["column", "mean cosine", "lowest", "rows without"], ...rows], {
      right: [1, 2, 3],
      width,
      leaveOut: sameValueFirst(rows, [1, 3]),
    }),
  ];
}

function timeLines(columns: readonly Named<"times">[], width: number | undefined): string[] {
  const rows = columns.map(([name, found]) => [name, share(found.equal, found.rows), showShift(found.largestShift)]);
  return [
    "dates and times",
    ...fitTable([["column", "equal", "largest shift"], ...rows], { right: [1, 2], width, leaveOut: [2] }),
  ];
}

/** "2 days", "1 day 02:03:04.5", "00:00:00.000000001": in nanoseconds below a day, to which float64 is exact. */
function showShift(seconds: number): string {
  if (!Number.isFinite(seconds)) {
    return "infinite";
  }
  const days = Math.floor(seconds / secondsPerDay);
  const rest = seconds - days * secondsPerDay;
  const nanos = days === 0 ? BigInt(Math.round(rest * 1e9)) : BigInt(Math.round(rest * 1e6)) * 1000n;
  if (nanos === nanosPerDay) {
    return count(days + 1, "day");
  }
  const named = days === 0 ? [] : [count(days, "day")];
  return [...named, ...(nanos === 0n && days > 0 ? [] : [withNanos(timeText(nanos / 1000n), nanos % 1000n)])].join(" ");
}

const secondsPerDay = 86_400;
const nanosPerDay = 86_400_000_000_000n;

function differentLines(
  { names, width, keysOf }: Pick<ShownAgreement, "names" | "width" | "keysOf">,
  column: string,
  { kind, most }: Measures,
): string[] {
  const [first] = most;
  if (first === undefined) {
    return [];
  }
  const keys = Object.keys(keysOf(first) ?? {});
  const lines = most.map((row) => {
    const values = keys.map((key) => keysOf(row)?.[key] ?? "NULL");
    return [
      ...(keys.length === 0 ? [String(row.row)] : values),
      row.one,
      row.other,
      ...(kind === "labels" ? [] : [kind === "times" ? showShift(row.distance) : figure(row.distance)]),
    ];
  });
  const heads = keys.length === 0 ? ["row"] : keys;
  const distance = { numbers: ["difference"], vectors: ["1 - cosine"], times: ["shift"], labels: [] }[kind];
  const head = [...heads, ...names, ...distance];
  const leaveOut = distance.map(() => head.length - 1); // it follows from the values
  return [
    `rows that differ${kind === "labels" ? "" : " most"} in ${column}`,
    ...fitTable([head, ...lines], { width, leaveOut }),
  ];
}

/** Six digits that count; "" for NaN. */
export function figure(value: number): string {
  return Number.isNaN(value) ? "" : String(Number(value.toPrecision(6)));
}

/** Shows a share as a percentage. Only a share of none is 0%, and only a share of all is 100%. */
function share(rows: number, of: number): string {
  const percent = (100 * rows) / of;
  const digits = percent.toFixed(2);
  const shown = rows > 0 && digits === "0.00" ? "<0.01" : rows < of && digits === "100.00" ? ">99.99" : digits;
  return of === 0 ? "" : `${shown}%`;
}

/** How a second model agrees: a line about its rows, then one for each output. No keys are in it. */
export function comparisonLines(result: RunComparison): string[] {
  const { model, columns, apart, tolerance } = result;
  return [
    `${modelNames[1]} ${model}: ${comparedRows(result)}`,
    ...columns.map(([name, found]) => `  ${name}: ${agreementLine(found, tolerance)}`),
    ...apart.map(({ name, reason }) => `  ${name}: not compared, ${reason}`),
  ];
}

/** How many rows were compared, and why others were not. */
export function comparedRows({ compared, missed, repeated }: RunComparison): string {
  const reasons = Object.entries(missed);
  const rows = reasons.reduce((sum, [, missing]) => sum + missing, 0);
  const why = reasons.map(([reason, missing]) => `${reason.replaceAll("_", " ")} ${missing}`).join(", ");
  const several = repeated === 0 ? "" : `, ${count(repeated, "key")} with several rows left out`;
  return `${count(compared, "row")} compared${rows === 0 ? "" : `, ${count(rows, "row")} that it did not score (${why})`}${several}`;
}

/**
 * How a second model agrees, as tables, with the keys of the rows that differ most.
 * @param width characters in a line of the terminal; undefined: there is none
 */
export function comparisonTables(result: RunComparison, width?: number): string[] {
  const { model, apart } = result;
  const shown = { ...shownAgreement(result), width };
  return [
    `${modelNames[1]} ${model}: ${comparedRows(result)}`,
    ...agreementTables(shown),
    ...apartTable(apart, width),
    ...differentRowTables(shown),
  ];
}

function shownAgreement({ columns, tolerance }: RunComparison): ShownAgreement {
  return { columns: new Map(columns), tolerance, names: modelNames, keysOf: ({ keys }) => keys };
}
