import { count, withSeparators as showCount } from "../base/shown-numbers.js";
import { type FitOptions, fitTable, sameValueFirst } from "./table.js";
import type { DifferentRow, Measures } from "../checks/agreement.js";
import { timeText, withNanos } from "../columns/value-text.js";
import type { RunComparison } from "../run/lifecycle/erasure.js";
import { assertNever } from "../base/errors.js";

type Numbers = Extract<Measures, { kind: "numbers" }>;

const beyond = "rows_beyond_tolerance";

/** The figures of numbers: their JSON names, what people read, and where they are. */
const numberFigures: readonly (readonly [json: string, head: string, of: (found: Numbers) => number])[] = [
  ["mean_difference", "mean difference", (found) => found.meanDifference],
  ["median_difference", "median", (found) => found.medianDifference],
  ["p90_difference", "p90", (found) => found.p90Difference],
  ["p99_difference", "p99", (found) => found.p99Difference],
  ["largest_difference", "largest", (found) => found.largestDifference],
  [beyond, "rows beyond", (found) => found.beyond],
  ["rank_correlation", "rank correlation", (found) => found.rankCorrelation],
  ["psi", "PSI", (found) => found.psi],
];

function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}

/**
 * The figures of a column under their JSON names; those that cannot be computed are null.
 * @param rowFields what is known of a row besides its predictions
 */
function agreementFields(
  found: Measures,
  [a, b]: Names,
  rowFields: (row: DifferentRow) => Readonly<Record<string, unknown>>,
): object {
  const most = found.most.map((row) => ({
    ...rowFields(row),
    [a]: row.one,
    [b]: row.other,
    distance: finite(row.distance),
  }));
  switch (found.kind) {
    case "numbers": {
      const figures = numberFigures.map(([json, , of]) => [json, json === beyond ? of(found) : finite(of(found))]);
      return { kind: "numbers", ...Object.fromEntries(figures), most_different: most };
    }
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

/** What was compared under its JSON names, and what was not. */
export function comparedFields(
  columns: Iterable<readonly [string, Measures]>,
  apart: readonly { readonly name: string; readonly reason: string }[],
  names: Names,
  rowFields: (row: DifferentRow) => Readonly<Record<string, unknown>>,
): object {
  return {
    outputs: Object.fromEntries([...columns].map(([name, found]) => [name, agreementFields(found, names, rowFields)])),
    not_compared: Object.fromEntries(apart.map(({ name, reason }) => [name, reason])),
  };
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
      ...comparedFields(columns, apart, modelNames, ({ row, keys }) => ({
        row,
        ...(withKeys && keys !== undefined ? { keys } : {}),
      })),
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
}

/** The figures of all columns as tables. */
export function agreementTables({ columns, tolerance, names, width }: ShownAgreement): string[] {
  const ofKind = <K extends Measures["kind"]>(kind: K): [string, Extract<Measures, { kind: K }>][] =>
    [...columns].flatMap(([name, found]) =>
      found.kind === kind ? [[name, found as Extract<Measures, { kind: K }>]] : [],
    );
  const tableOf = (
    title: string,
    head: readonly string[],
    rows: string[][],
    fit: Omit<FitOptions, "width">,
  ): string[] => (rows.length === 0 ? [] : [title, ...fitTable([head, ...rows], { width, ...fit })]);

  const numbers = ofKind("numbers").map(([name, found]) =>
    [name].concat(
      numberFigures.map(([json, , of]) => (json === beyond ? share(of(found), found.rows) : figure(of(found)))),
    ),
  );
  const heads = numberFigures.map(([json, head]) => (json === beyond ? `${head} ${tolerance}` : head));
  const labels = ofKind("labels");
  const flips = labels.flatMap(([name, found]) => [
    ...flipRows(found).map((row) => [name].concat(row)),
    ...(found.flips.length > shownFlips ? [[name, "more pairs", "", ""]] : []),
  ]);
  const vectors = ofKind("vectors").map(([name, { meanCosine, lowestCosine, without }]) => [
    name,
    figure(meanCosine),
    figure(lowestCosine),
    showCount(without),
  ]);
  return [
    ...tableOf("numbers", ["column", ...heads], numbers, {
      right: [1, 2, 3, 4, 5, 6, 7, 8],
      leaveOut: dispensable.map((name) => heads.indexOf(name) + 1),
    }),
    ...tableOf(
      "labels",
      ["column", "equal", "PSI"],
      labels.map(([name, found]) => [name, share(found.equal, found.rows), figure(found.psi)]),
      { right: [1, 2], leaveOut: [2] },
    ),
    ...tableOf("labels that differ", ["column", ...names, "rows"], flips, {
      right: [3],
      leaveOut: labels.length === 1 ? [0, 3] : [3],
    }),
    ...tableOf("vectors", ["column", "mean cosine", "lowest", "rows without"], vectors, {
      right: [1, 2, 3],
      leaveOut: sameValueFirst(vectors, [1, 3]),
    }),
    ...tableOf(
      "dates and times",
      ["column", "equal", "largest shift"],
      ofKind("times").map(([name, found]) => [name, share(found.equal, found.rows), showShift(found.largestShift)]),
      { right: [1, 2], leaveOut: [2] },
    ),
  ];
}

const shownFlips = 10;

/** The pairs of labels that differ in most rows, with their rows. */
export function flipRows({ flips }: Extract<Measures, { kind: "labels" }>): string[][] {
  return flips.slice(0, shownFlips).map(({ one, other, rows }) => [one, other, showCount(rows)]);
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
export function differentRowTables({ columns, names, width }: ShownAgreement): string[] {
  return [...columns].flatMap(([column, measures]) => {
    const { kind, most } = measures;
    const { head, rows, hasDistance } = differentRows(measures, names);
    const leaveOut = hasDistance ? [head.length - 1] : []; // it follows from the values
    const title = `rows that differ${kind === "labels" ? "" : " most"} in ${column}`;
    return most.length === 0 ? [] : [title].concat(fitTable([head].concat(rows), { width, leaveOut }));
  });
}

/** The rows that differ most in a column, with headings. Their keys come first, or else their number. */
export function differentRows(
  { kind, most }: Measures,
  names: Names,
): { readonly head: string[]; readonly rows: string[][]; readonly hasDistance: boolean } {
  const keys = Object.keys(most[0]?.keys ?? {});
  const distance = { numbers: ["difference"], vectors: ["1 - cosine"], times: ["shift"], labels: [] }[kind];
  const rows = most.map((row) => [
    ...(keys.length === 0 ? [String(row.row)] : keys.map((key) => row.keys?.[key] ?? "NULL")),
    row.one,
    row.other,
    ...distance.map(() => (kind === "times" ? showShift(row.distance) : figure(row.distance))),
  ]);
  const head = [...(keys.length === 0 ? ["row"] : keys), ...names, ...distance];
  return { head, rows, hasDistance: distance.length > 0 };
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
  const { model, columns, apart, tolerance } = result;
  const shown = { columns: new Map(columns), tolerance, names: modelNames, width };
  return [
    `${modelNames[1]} ${model}: ${comparedRows(result)}`,
    ...agreementTables(shown),
    ...apartTable(apart, width),
    ...differentRowTables(shown),
  ];
}
