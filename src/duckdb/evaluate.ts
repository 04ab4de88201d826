import { comparableKind } from "../checks/agreement.js";
import type { Evaluated, EvaluationRequest, Figures } from "../checks/evaluation.js";
import { type ColumnType, showType } from "../columns/types.js";
import { isCalendarDate } from "../run/plan/identity.js";
import { JobError } from "../base/errors.js";
import { numbersOf, quantiles } from "./agreement.js";
import { convertingKeys, type RowJoin, rowsOf, sharedKey } from "./row-join.js";
import { quoteName, quoteText, sqlTypeOf } from "./sql.js";

/** The number of slices that are shown, those with the most rows. */
const mostSlices = 50;
/** Probabilities of 0 and 1 are moved by so much before their logarithm is taken, as scikit-learn does. */
const least = 2 ** -52;

/**
 * Judges the predictions in table `a` by the labels in table `b`, joined by key. A key with several labels has none.
 * @throws JobError USAGE for labels that no prediction of such a type can equal, a date column without dates, and a class
 *   that no label has
 */
export async function evaluateRows(join: RowJoin, request: EvaluationRequest): Promise<Evaluated> {
  const { connection } = join;
  const { key, label, prediction, by, date } = request;
  const keys = await sharedKey(connection, key);
  const types = { predicted: typeOf(join, "a", prediction), labelled: typeOf(join, "b", label) };
  const ofDate = date === undefined ? "true" : await dateSql(join, date);
  // The kind is that of all labels, so that nights without any have the figures of the others.
  const kind = await kindOf(join, types, request);
  const [p, y] = await valuesOf(join, kind, { types, request });

  const isOfLabels = by !== undefined && !join.columns.a.some(({ name }) => name === by);
  const sliceOf = by === undefined ? "" : `, ${quoteName(by)}::VARCHAR AS slice`;
  const named = keys.map(({ sql }, index) => `${sql} AS k${index}`).join(", ");
  const k = keys.map((_, index) => `k${index}`);
  await convertingKeys(keys, async () => {
    await connection.run(
      `CREATE OR REPLACE TEMP TABLE labels AS SELECT ${k.join(", ")}, any_value(y) AS y, count(*) AS n${isOfLabels ? ", any_value(slice) AS slice" : ""}
        FROM (SELECT ${named}, ${quoteName(label)} AS y${isOfLabels ? sliceOf : ""} FROM b WHERE ${ofDate}) GROUP BY ${k.join(", ")}`,
    );
    await connection.run(
      `CREATE OR REPLACE TEMP TABLE judged AS SELECT ${p} AS score, ${y} AS truth${by === undefined ? "" : ", slice"}
        FROM (SELECT ${named}, ${quoteName(prediction)} AS p${isOfLabels ? "" : sliceOf} FROM a) AS a
        LEFT JOIN (SELECT * FROM labels WHERE n = 1) AS labels ON ${k.map((name) => `a.${name} = labels.${name}`).join(" AND ")}`,
    );
  });

  const [repeated] = await numbersOf(connection, "SELECT count(*) FROM labels WHERE n > 1");
  const slices =
    by === undefined
      ? []
      : await rowsOf(join, `SELECT slice FROM judged GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT ${mostSlices}`);
  const bySlice = new Map<string, Figures>();
  for (const [slice] of slices) {
    const value = typeof slice === "string" ? slice : null;
    const where = value === null ? "slice IS NULL" : `slice = ${quoteText(value)}`;
    bySlice.set(value ?? "NULL", await figuresOf(join, kind, where, request.threshold));
  }
  return { kind, repeated, all: await figuresOf(join, kind, "true", request.threshold), bySlice };
}

interface Types {
  readonly predicted: ColumnType;
  readonly labelled: ColumnType;
}

function typeOf({ columns }: RowJoin, side: "a" | "b", wanted: string): ColumnType {
  const type = columns[side].find(({ name }) => name === wanted)?.type;
  if (type === undefined) {
    const where = side === "a" ? "the predictions" : "the labels";
    throw new JobError("USAGE", `evaluating: ${where} have no column ${wanted} of a type that can be compared`, {
      hint: `name one with ${side === "a" ? "--prediction" : "--label"}: ${columns[side].map(({ name }) => name).join(", ")}`,
    });
  }
  return type;
}

/** SQL that is true for labels of a date: those of any time of the day, if it is a day. */
async function dateSql(
  join: RowJoin,
  { column, value }: { readonly column: string; readonly value: string },
): Promise<string> {
  const text = `${quoteName(column)}::VARCHAR`;
  if (!isCalendarDate(value)) {
    return `${text} = ${quoteText(value)}`;
  }
  const day = `try_cast(${text} AS DATE)`;
  const [[example, hasDates] = []] = await rowsOf(join, `SELECT any_value(${text}), count(${day}) > 0 FROM b`);
  if (typeof example === "string" && hasDates !== true) {
    throw new JobError("USAGE", `evaluating by ${column}: ${JSON.stringify(example)} is no date`, {
      hint: "name a column with dates, such as 2026-11-20, or leave out --date; a label is then that of every run",
    });
  }
  return `${day} = DATE ${quoteText(value)}`;
}

/** How predictions are judged: as the probability of a class, as numbers, or as labels that are right or wrong. */
async function kindOf(
  join: RowJoin,
  { predicted, labelled }: Types,
  { positive, label, prediction }: EvaluationRequest,
): Promise<Evaluated["kind"]> {
  if (comparableKind(predicted, predicted) !== "numbers") {
    if (positive !== undefined) {
      throw new JobError(
        "USAGE",
        `evaluating ${prediction}: it is ${showType(predicted)}, no probability of ${positive}`,
        {
          hint: "leave out --positive, or name a column with probabilities with --prediction",
        },
      );
    }
    return "labels";
  }
  if (positive !== undefined || labelled === "bool") {
    return "classes";
  }
  await refuseTexts(
    join,
    label,
    numberSql,
    "it is no number: name the label of the class whose probability is predicted with --positive",
  );
  const [[hasNumbers] = []] = await rowsOf(
    join,
    `SELECT bool_or(isfinite(number) AND number NOT IN (0, 1)) FROM (SELECT ${numberSql(quoteName(label))} AS number FROM b)`,
  );
  return hasNumbers === true ? "numbers" : "classes";
}

/** SQL of the prediction `p` and of the label `y` as they are judged. A label that is NaN or infinite is none. */
async function valuesOf(
  join: RowJoin,
  kind: Evaluated["kind"],
  { types, request }: { readonly types: Types; readonly request: EvaluationRequest },
): Promise<readonly [string, string]> {
  const { label, positive } = request;
  if (kind === "labels") {
    return await labelsOf(join, types, request);
  }
  const score = "CASE WHEN isfinite(p::DOUBLE) THEN p::DOUBLE END";
  if (positive === undefined) {
    const number = numberSql("y");
    return [score, `CASE WHEN isfinite(${number}) THEN ${number} END`];
  }
  const isPositive = (value: string): string =>
    isNumber(types.labelled)
      ? `${exactSql(value)} = ${exactSql(quoteText(positive))}`
      : `${value}::VARCHAR = ${quoteText(positive)}`;
  const column = quoteName(label);
  const [[hasLabels, hasPositive] = []] = await rowsOf(
    join,
    `SELECT count(${isNumber(types.labelled) ? exactSql(column) : column}) > 0, bool_or(${isPositive(column)}) FROM b`,
  );
  if (hasLabels === true && hasPositive !== true) {
    const labels = await rowsOf(
      join,
      `SELECT ${column}::VARCHAR FROM b WHERE ${column} IS NOT NULL GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT ${shownLabels}`,
    );
    throw new JobError("USAGE", `evaluating by ${label}: no label is ${positive}`, {
      hint: `name one of them with --positive, such as ${labels.map(([text]) => String(text)).join(", ")}`,
    });
  }
  return [score, `(${isPositive("y")})::INTEGER::DOUBLE`];
}

/** The number of labels that a hint names. */
const shownLabels = 5;

/** SQL of both as values that are equal where the label is the predicted one. */
async function labelsOf(
  join: RowJoin,
  { predicted, labelled }: Types,
  { label, prediction }: EvaluationRequest,
): Promise<readonly [string, string]> {
  if (showType(predicted) === showType(labelled) || comparableKind(predicted, labelled) !== undefined) {
    return ["p", "y"];
  }
  if (isNumber(predicted) && isNumber(labelled)) {
    return [exactSql("p"), exactSql("y")];
  }
  /** SQL of a text read as a value of the other side's type, and of such a value, as texts. */
  const read = (text: string, type: ColumnType): string =>
    isNumber(type) ? exactSql(text) : `try_cast(${text} AS ${sqlTypeOf(type)})::VARCHAR`;
  const shown = (value: string, type: ColumnType): string => (isNumber(type) ? exactSql(value) : `${value}::VARCHAR`);
  if (labelled === "utf8") {
    const isRead = (text: string): string => (isNumber(predicted) ? numberSql(text) : read(text, predicted));
    const hint = `the predictions are ${showType(predicted)}: name labels of such a type with --label`;
    await refuseTexts(join, label, isRead, hint);
    return [shown("p", predicted), read("y", predicted)];
  }
  if (predicted === "utf8") {
    const [[text, isAny] = []] = await rowsOf(
      join,
      `SELECT any_value(p), count(${read("p", labelled)}) > 0 FROM (SELECT ${quoteName(prediction)} AS p FROM a)`,
    );
    if (typeof text !== "string" || isAny === true) {
      return [`coalesce(${read("p", labelled)}, p)`, shown("y", labelled)];
    }
  }
  const types = `a prediction is ${showType(predicted)}, a label ${showType(labelled)}`;
  throw new JobError("USAGE", `evaluating ${prediction} by ${label}: ${types}`, {
    hint: "name columns whose values can be equal with --prediction and --label",
  });
}

/** Refuses labels of which a text cannot be read. */
async function refuseTexts(join: RowJoin, label: string, read: (value: string) => string, hint: string): Promise<void> {
  const [[text] = []] = await rowsOf(
    join,
    `SELECT any_value(y::VARCHAR) FILTER (${read("y")} IS NULL) FROM (SELECT ${quoteName(label)} AS y FROM b) WHERE y IS NOT NULL`,
  );
  if (typeof text === "string") {
    throw new JobError("USAGE", `evaluating by ${label}: a label is ${JSON.stringify(text)}`, { hint });
  }
}

function isNumber(type: ColumnType): boolean {
  return type === "bool" || comparableKind(type, type) === "numbers" || comparableKind(type, "int64") !== undefined;
}

/** SQL of a number or a truth of any type as float64; NULL: it is neither. */
function numberSql(value: string): string {
  return `coalesce(try_cast(${value} AS DOUBLE), try_cast(${value}::VARCHAR AS BOOLEAN)::INTEGER::DOUBLE)`;
}

/**
 * SQL of a number or a truth of any type as a text that is the same for equal numbers: 1 of "1.0" and of true. No digit of
 * an integer is rounded. NULL: it is neither, or not finite.
 */
function exactSql(value: string): string {
  const [text, number] = [`${value}::VARCHAR`, numberSql(value)];
  // The text of a float32 has fewer digits than its value.
  const isWhole = `typeof(${value}) <> 'FLOAT' AND regexp_full_match(${text}, '\\s*[+-]?[0-9]{1,38}(\\.0*)?\\s*')`;
  const ofNumber = `CASE WHEN ${number} = trunc(${number}) AND abs(${number}) < 1e38 THEN try_cast(${number} AS HUGEINT)::VARCHAR
    WHEN isfinite(${number}) THEN (${number})::VARCHAR END`;
  return `CASE WHEN ${isWhole} THEN try_cast(split_part(${text}, '.', 1) AS HUGEINT)::VARCHAR ELSE ${ofNumber} END`;
}

/** Computes the figures of some rows of the table `judged`. */
async function figuresOf(join: RowJoin, kind: Evaluated["kind"], where: string, threshold: number): Promise<Figures> {
  const { connection } = join;
  const both = `judged WHERE score IS NOT NULL AND truth IS NOT NULL AND ${where}`;
  const [rows, labelled, judged] = await numbersOf(
    connection,
    `SELECT count(*), count(truth), count(*) FILTER (score IS NOT NULL AND truth IS NOT NULL) FROM judged WHERE ${where}`,
  );
  const counts = { rows, labelled, judged };
  if (kind === "labels") {
    const [right] = await numbersOf(connection, `SELECT count(*) FROM ${both} AND score = truth`);
    return { ...counts, values: { accuracy: right / judged }, calibration: [] };
  }
  if (kind === "numbers") {
    const [absolute, squared, signed] = await numbersOf(
      connection,
      `SELECT fsum(abs(score - truth)), fsum((score - truth) ** 2), fsum(score - truth) FROM ${both}`,
    );
    const values = { mae: absolute / judged, rmse: Math.sqrt(squared / judged), bias: signed / judged };
    return { ...counts, values, calibration: [] };
  }
  const edges = await quantiles(connection, `SELECT score AS v, truth::BIGINT AS y FROM ${both}`, deciles);
  // Twice the rank of a row is a whole number, where equal scores share the mean of their ranks: the sum is exact.
  const [above, positives] = await numbersOf(
    connection,
    `SELECT (sum(rank * y) - sum(y) * (sum(y) + 1))::DOUBLE, sum(y)::DOUBLE
      FROM (SELECT (min(rowid) + max(rowid) + 2)::HUGEINT AS rank, sum(y)::HUGEINT AS y FROM sorted GROUP BY v)`,
  );
  const p = `least(greatest(score, ${least}::DOUBLE), 1 - ${least}::DOUBLE)`;
  const [loss, hits, alarms] = await numbersOf(
    connection,
    `SELECT fsum(-(truth * ln(${p}) + (1 - truth) * ln(1 - ${p}))), count(*) FILTER (score >= ${threshold} AND truth = 1),
      count(*) FILTER (score >= ${threshold}) FROM ${both}`,
  );
  const calibration = await rowsOf(
    join,
    `SELECT fsum(score) / count(*), fsum(truth) / count(*), count(*)::DOUBLE FROM ${both}
      GROUP BY len(list_filter([${edges.join(", ")}]::DOUBLE[], edge -> edge < score)) ORDER BY 1`,
  );
  return {
    ...counts,
    values: {
      auc: above / (2 * positives * (judged - positives)),
      log_loss: loss / judged,
      precision: hits / alarms,
      recall: hits / positives,
    },
    calibration: calibration.map(([predicted, observed, count]) => ({
      predicted: Number(predicted),
      observed: Number(observed),
      rows: Number(count),
    })),
  };
}

const deciles = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
