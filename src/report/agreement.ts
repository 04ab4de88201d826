import { count, showCount, percent } from "../base/shown-numbers.js";
import { fitTable } from "./table.js";
import { type Agreement, type DifferentRow, type Measures, modelNames } from "../checks/agreement.js";
import type { RunComparison } from "../run/lifecycle/erasure.js";

type Names = readonly [a: string, b: string];

/** What figures are called, where that is not their JSON name without its unit. */
const heads: Readonly<Record<string, string>> = {
  rows_beyond_tolerance: "beyond",
  mean_difference: "mean difference",
  psi: "PSI",
};

/** Figures of rows are shares of all rows. */
function figuresOf(
  { figures, rows }: Measures,
  tolerance: number,
): { readonly head: string; readonly text: string; readonly isShare: boolean }[] {
  return Object.entries(figures).map(([name, value]) => {
    const isShare = name.startsWith("rows_");
    const known = value ?? Number.NaN;
    const head = heads[name] ?? name.replace(/^rows_|_(?:difference|seconds)$/g, "").replaceAll("_", " ");
    const show = name.endsWith("_seconds") ? showShift : figure;
    return {
      head: name === "rows_beyond_tolerance" ? `${head} ${tolerance}` : head,
      text: isShare ? percent(rows === 0 ? "" : known / rows, 4) : show(known),
      isShare,
    };
  });
}

/** Six digits that count; "" for NaN. */
export function figure(value: number): string {
  return Number.isNaN(value) ? "" : String(Number(value.toPrecision(6)));
}

/** "1.5 days", "0.25 s". */
function showShift(seconds: number): string {
  const days = Number(figure(seconds / 86_400));
  return days < 1 ? `${figure(seconds)} s` : `${days} ${days === 1 ? "day" : "days"}`;
}

/** The figures of a column in one line: "0.3% of the rows beyond 0.01, largest 0.2, mean difference 0.004". */
export function agreementLine(measures: Measures, tolerance: number): string {
  return figuresOf(measures, tolerance)
    .map(({ head, text, isShare }) => (isShare ? `${text} of the rows ${head}` : `${head} ${text || "unknown"}`))
    .join(", ");
}

/** How two sides agree under JSON names. @param rowFields what is known of a row besides its values */
export function comparedFields(
  { rows, columns, apart }: Agreement,
  [a, b]: Names,
  rowFields: (row: DifferentRow) => Readonly<Record<string, unknown>>,
): object {
  const fieldsOf = ({ kind, figures, flips, most }: Measures): object => ({
    kind,
    ...figures,
    ...(kind === "labels" && {
      flips: flips.map((flip) => ({ [a]: flip.one, [b]: flip.other, rows: flip.rows })),
    }),
    most_different: most.map((row) => ({ ...rowFields(row), [a]: row.one, [b]: row.other, distance: row.distance })),
  });
  return {
    ...rows,
    outputs: Object.fromEntries(columns.map(([name, measures]) => [name, fieldsOf(measures)])),
    not_compared: Object.fromEntries(apart.map(({ name, reason }) => [name, reason])),
  };
}

/** A result under its JSON name; nothing if the run has none. @param withKeys whether rows come with their keys */
export function comparisonFields(
  result: RunComparison | undefined,
  withKeys: boolean,
): { readonly challenger?: object } {
  if (result === undefined) {
    return {};
  }
  const { model, sha256, version, place, tolerance, missed } = result;
  const fields = comparedFields(result, modelNames, ({ row, keys }) => ({ row, ...(withKeys && keys && { keys }) }));
  return { challenger: { model, sha256, version, place, tolerance, rows_missed: missed, ...fields } };
}

const titles = { numbers: "numbers", labels: "labels", vectors: "vectors", times: "dates and times" };

/**
 * How two sides agree: the figures of all columns as a table for each kind, the columns that are not compared, and the rows
 * that differ most.
 * @param width characters in a line of the terminal; undefined: there is none
 */
export function agreementTables(
  { columns: all, apart, tolerance }: Pick<Agreement, "columns" | "apart" | "tolerance">,
  names: Names,
  width?: number,
): string[] {
  const tables = Object.entries(titles).flatMap(([kind, title]) => {
    const rows = all
      .filter(([, measures]) => measures.kind === kind)
      .map(([name, measures]) => ({ name, figures: figuresOf(measures, tolerance) }));
    const [first] = rows;
    if (first === undefined) {
      return [];
    }
    const head = ["column", ...first.figures.map((each) => (each.isShare ? `rows ${each.head}` : each.head))];
    const cells = rows.map(({ name, figures }) => [name].concat(figures.map(({ text }) => text)));
    const right = head.map((_, index) => index).slice(1);
    return [title].concat(fitTable([head, ...cells], { right, width, leaveOut: right.slice(1).toReversed() }));
  });

  const flips = all.flatMap(([name, measures]) => [
    ...flipRows(measures).map((row) => [name].concat(row)),
    ...(measures.flips.length > shownFlips ? [[name, "more pairs", "", ""]] : []),
  ]);
  const flipTable = fitTable([["column", ...names, "rows"], ...flips], { right: [3], width, leaveOut: [3] });
  const reasons = apart.map(({ name, reason }) => [name, reason]);
  const different = all.flatMap(([name, measures]) => {
    const { title, head, rows } = differentRows(measures, names);
    return rows.length === 0 ? [] : [`${title} in ${name}`].concat(fitTable([head, ...rows], { width }));
  });
  return [
    ...tables,
    ...(flips.length === 0 ? [] : ["labels that differ", ...flipTable]),
    ...(reasons.length === 0 ? [] : ["not compared", ...fitTable(reasons, { width, hasNotes: true })]),
    ...different,
  ];
}

const shownFlips = 10;

/** The pairs of labels that differ in most rows, with their rows. */
export function flipRows({ flips }: Measures): string[][] {
  return flips.slice(0, shownFlips).map(({ one, other, rows }) => [one, other, showCount(rows)]);
}

const distances = { numbers: ["difference"], vectors: ["1 - cosine"], times: ["shift"], labels: [] };

/** The rows that differ most in a column, with headings. Their keys come first, or else their number. */
export function differentRows(
  { kind, most }: Measures,
  names: Names,
): { readonly title: string; readonly head: string[]; readonly rows: string[][] } {
  const keys = Object.keys(most[0]?.keys ?? {});
  const distanceOf = ({ distance }: DifferentRow): string =>
    distance === null ? "infinite" : kind === "times" ? showShift(distance) : figure(distance);
  return {
    title: `rows that differ${kind === "labels" ? "" : " most"}`,
    head: [...(keys.length === 0 ? ["row"] : keys), ...names, ...distances[kind]],
    rows: most.map((row) => [
      ...(keys.length === 0 ? [String(row.row)] : keys.map((key) => row.keys?.[key] ?? "NULL")),
      row.one,
      row.other,
      ...distances[kind].map(() => distanceOf(row)),
    ]),
  };
}

/** How a second model agrees: a line about its rows, then one for each output. No keys are in it. */
export function comparisonLines(result: RunComparison): string[] {
  const { model, columns, apart, tolerance } = result;
  return [
    `${modelNames[1]} ${model}: ${comparedRows(result)}`,
    ...columns.map(([name, measures]) => `  ${name}: ${agreementLine(measures, tolerance)}`),
    ...apart.map(({ name, reason }) => `  ${name}: not compared, ${reason}`),
  ];
}

/** How many rows were compared, and why others were not. */
export function comparedRows({
  rows: { rows_compared: compared, keys_repeated: repeated },
  missed,
}: RunComparison): string {
  const reasons = Object.entries(missed);
  const left = reasons.reduce((sum, [, missing]) => sum + missing, 0);
  const why = reasons.map(([reason, missing]) => `${reason.replaceAll("_", " ")} ${missing}`).join(", ");
  const several = repeated === 0 ? "" : `, ${count(repeated, "key")} with several rows left out`;
  return `${count(compared, "row")} compared${left === 0 ? "" : `, ${count(left, "row")} that it did not score (${why})`}${several}`;
}
