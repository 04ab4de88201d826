import { count } from "../base/shown-numbers.js";
import { cutToWidth } from "../base/display-width.js";
import { fitTable } from "./table.js";

/** Rows with their predictions. A value is JSON text. */
export interface ShownRows {
  readonly carried: readonly string[];
  readonly features: readonly string[];
  readonly predictions: readonly string[];
  /** The number of features of the model, of which only some are shown. */
  readonly featureCount: number;
  /** A list for each row: the values of carried columns, features and predictions, in this order. */
  readonly rows: readonly (readonly string[])[];
}

const widest = 32;

/**
 * The rows as a table: carried columns, features, predictions. A terminal of `width` characters shows as many columns as it
 * has room for, and of a long value the beginning; a first column that tells the rows apart, and a prediction, are always
 * shown.
 */
export function previewTable(
  { carried, features, predictions, featureCount, rows }: ShownRows,
  width: number | undefined,
): string {
  const names = [...carried, ...features, ...predictions];
  const right = names.flatMap((_, index) => (rows.every((row) => isNumber(row[index] ?? "")) ? [index] : []));
  const shown = rows.map((row) =>
    row.map((value) => {
      const text = plain(value) ?? "NULL";
      return width === undefined ? text : cutToWidth(text, widest);
    }),
  );
  const more = featureCount - features.length;
  return [
    ...fitTable([names, ...shown], { right, width, leaveOut: leaveOut({ carried, features, predictions }) }),
    `${count(rows.length, "row")}: ${named(carried)}${count(features.length, "feature")}${more > 0 ? ` of ${featureCount}` : ""}, ${named(predictions, "")}`,
  ].join("\n");
}

/** The features, then carried columns, then predictions, each from the last. */
function leaveOut({ carried, features, predictions }: Omit<ShownRows, "featureCount" | "rows">): number[] {
  const [featuresFrom, predictionsFrom] = [carried.length, carried.length + features.length];
  return [
    ...backwards(featuresFrom, predictionsFrom),
    ...backwards(1, featuresFrom),
    ...backwards(predictionsFrom + 1, predictionsFrom + predictions.length),
  ];
}

function backwards(from: number, to: number): number[] {
  return Array.from({ length: Math.max(0, to - from) }, (_, index) => to - 1 - index);
}

function named(names: readonly string[], end = ", "): string {
  return names.length === 0 ? "" : `${names.slice(0, 4).join(", ")}${names.length > 4 ? ", …" : ""}${end}`;
}

/** One line of JSON for each row; features are an object of their own, since a prediction may have the name of one. */
export function previewJson({ carried, features, predictions, rows }: ShownRows): string[] {
  return rows.map((row) => {
    const field = (name: string, index: number): string => `${JSON.stringify(name)}:${row[index] ?? "null"}`;
    const featuresFrom = carried.length;
    const predictionsFrom = featuresFrom + features.length;
    const object = features.map((name, index) => field(name, featuresFrom + index)).join(",");
    const others = [
      ...carried.map((name, index) => field(name, index)),
      `"features":{${object}}`,
      ...predictions.map((name, index) => field(name, predictionsFrom + index)),
    ];
    return `{${others.join(",")}}`;
  });
}

/** The rows as CSV (RFC 4180) with a header; NULL is an empty field. */
export function previewCsv({ carried, features, predictions, rows }: ShownRows): string[] {
  const header = [...carried, ...features, ...predictions];
  return [header, ...rows.map((row) => row.map((value) => plain(value) ?? ""))].map((fields) =>
    fields.map((field) => (/[",\r\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field)).join(","),
  );
}

/** Without the quotes of a JSON text; undefined: NULL. */
function plain(json: string): string | undefined {
  return json === "null" ? undefined : json.startsWith('"') ? (JSON.parse(json) as string) : json;
}

function isNumber(json: string): boolean {
  return json === "null" || /^-?[\d.]/.test(json) || json === '"NaN"';
}
