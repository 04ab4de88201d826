import { quoteName, quoteText } from "../base/sql.js";
import { comparableKind } from "../checks/agreement.js";
import type { Evaluated, EvaluationRequest, Figures } from "../checks/evaluation.js";
import { type ColumnType, showType } from "../columns/types.js";
import { isCalendarDate } from "../run/plan/identity.js";
import { JobError } from "../base/errors.js";
import { deciles, numbersOf, quantiles } from "./agreement.js";
import { type RowJoin, selectRowsOf, sharedKey } from "./row-join.js";
import { sqlTypeOf } from "./sql.js";

/** The number of slices that are shown, those with the most rows. */
const mostSlices = 50;
/** Probabilities of 0 and 1 are moved by so much before their logarithm is taken, as scikit-learn does. */
const least = 2 ** -52;
/** The number of labels that a hint names. */
const shownLabels = 5;

/**
 * Judges the predictions in table `a` by the labels in table `b`, joined by key. A key with several labels has none.
 * @throws JobError USAGE for labels that no prediction of such a type can equal, a date column without dates, and a class
 *   that no label has
 */
export async function evaluateRows(join: RowJoin, request: EvaluationRequest): Promise<Evaluated> {
  const { connection } = join;
  const { key, label, prediction, by, threshold } = request;
  const keys = await sharedKey(join, key);
  const ofDate = await dateSql(join, request);
  // The kind is that of all labels, so that nights without any have the figures of the others.
  const { kind, score, truth } = await judgedAs(join, request);

  const isOfLabels = by !== undefined && !join.columns.a.some(({ name }) => name === by);
  const sliceSql = by === undefined ? "NULL" : `${quoteName(by)}::VARCHAR`;
  const named = keys.map((sql, index) => `${sql} AS k${index}`).join(", ");
  const k = keys.map((_, index) => `k${index}`).join(", ");
  await connection.run(
    `CREATE OR REPLACE TEMP TABLE labels AS SELECT ${k}, any_value(y) AS y, any_value(slice) AS slice_of, count(*) AS n
      FROM (SELECT ${named}, ${quoteName(label)} AS y, ${isOfLabels ? sliceSql : "NULL"} AS slice FROM b WHERE ${ofDate}) GROUP BY ${k}`,
  );
  await connection.run(
    `CREATE OR REPLACE TEMP TABLE judged AS SELECT ${score} AS score, ${truth} AS truth, ${isOfLabels ? "slice_of" : "slice"} AS slice
      FROM (SELECT ${named}, ${quoteName(prediction)} AS p, ${isOfLabels ? "NULL" : sliceSql} AS slice FROM a)
      LEFT JOIN (SELECT * FROM labels WHERE n = 1) USING (${k})`,
  );

  const [repeated] = await numbersOf(connection, "SELECT count(*) FROM labels WHERE n > 1");
  const most = `SELECT slice FROM judged GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT ${mostSlices}`;
  const slices: [string, Figures][] = [];
  for (const [slice] of by === undefined ? [] : await selectRowsOf(join, most)) {
    const [name, where] =
      typeof slice === "string" ? [slice, `slice = ${quoteText(slice)}`] : ["NULL", "slice IS NULL"];
    slices.push([name, await figuresOf(join, { kind, where, threshold })]);
  }
  const all = await figuresOf(join, { kind, where: "true", threshold });
  return { kind, prediction, keys_with_several_labels: repeated, all, by: slices };
}

function typeOf({ columns }: RowJoin, side: "a" | "b", wanted: string): ColumnType {
  const type = columns[side].find(({ name }) => name === wanted)?.type;
  if (type === undefined) {
    const [where, flag] = side === "a" ? ["the predictions", "--prediction"] : ["the labels", "--label"];
    throw new JobError("USAGE", `evaluating: ${where} have no column ${wanted} of a type that can be compared`, {
      hint: `name one with ${flag}: ${columns[side].map(({ name }) => name).join(", ")}`,
    });
  }
  return type;
}

/** SQL that is true for labels of a date: those of any time of the day, if it is a day. */
async function dateSql(join: RowJoin, { date }: EvaluationRequest): Promise<string> {
  if (date === undefined) {
    return "true";
  }
  const text = `${quoteName(date.column)}::VARCHAR`;
  if (!isCalendarDate(date.value)) {
    return `${text} = ${quoteText(date.value)}`;
  }
  const day = `try_cast(${text} AS DATE)`;
  const [[example, hasDates] = []] = await selectRowsOf(join, `SELECT any_value(${text}), count(${day}) > 0 FROM b`);
  if (typeof example === "string" && hasDates !== true) {
    throw new JobError("USAGE", `evaluating by ${date.column}: ${JSON.stringify(example)} is no date`, {
      hint: "name a column with dates, such as 2026-11-20, or leave out --date; a label is then that of every run",
    });
  }
  return `${day} = DATE ${quoteText(date.value)}`;
}

/** How predictions are judged, and SQL of a prediction `p` and of a label `y` as it compares them. */
interface JudgedAs {
  /** As the probability of a class, as numbers, or as labels that are right or wrong. */
  readonly kind: Evaluated["kind"];
  readonly score: string;
  /** A label that is NaN or infinite is none. */
  readonly truth: string;
}

async function judgedAs(join: RowJoin, request: EvaluationRequest): Promise<JudgedAs> {
  const { positive, label, prediction } = request;
  const [predicted, labelled] = [typeOf(join, "a", prediction), typeOf(join, "b", label)];
  const isOfNumbers = comparableKind(predicted, predicted) === "numbers";
  if (!isOfNumbers && positive !== undefined) {
    const found = `it is ${showType(predicted)}, no probability of ${positive}`;
    throw new JobError("USAGE", `evaluating ${prediction}: ${found}`, {
      hint: "leave out --positive, or name a column with probabilities with --prediction",
    });
  }
  if (!isOfNumbers) {
    return { kind: "labels", ...(await labelsOf(join, { predicted, labelled }, request)) };
  }
  const score = "CASE WHEN isfinite(p::DOUBLE) THEN p::DOUBLE END";
  if (positive !== undefined) {
    return { kind: "classes", score, truth: await positiveSql(join, labelled, { label, positive }) };
  }
  const hint = "it is no number: name the label of the class whose probability is predicted with --positive";
  await refuseTexts(join, label, numberSql, hint);
  const number = numberSql(quoteName(label));
  const [[hasOthers] = []] = await selectRowsOf(
    join,
    `SELECT bool_or(isfinite(${number}) AND ${number} NOT IN (0, 1)) FROM b`,
  );
  const truth = `CASE WHEN isfinite(${numberSql("y")}) THEN ${numberSql("y")} END`;
  return { kind: hasOthers === true ? "numbers" : "classes", score, truth };
}

/** SQL of 1 for labels `y` of a class, and of 0 for others. */
async function positiveSql(
  join: RowJoin,
  type: ColumnType,
  { label, positive }: { readonly label: string; readonly positive: string },
): Promise<string> {
  const asText = isNumber(type) ? exactSql : (value: string): string => `${value}::VARCHAR`;
  const is = (value: string): string =>
    `${asText(value)} = ${isNumber(type) ? exactSql(quoteText(positive)) : quoteText(positive)}`;
  const column = quoteName(label);
  const labels = await selectRowsOf(
    join,
    `SELECT ${column}::VARCHAR, bool_or(${is(column)}) FROM b WHERE ${asText(column)} IS NOT NULL
      GROUP BY 1 ORDER BY 2 DESC, count(*) DESC, 1 LIMIT ${shownLabels}`,
  );
  if (labels.length > 0 && labels[0]?.[1] !== true) {
    throw new JobError("USAGE", `evaluating by ${label}: no label is ${positive}`, {
      hint: `name one of them with --positive, such as ${labels.map(([text]) => String(text)).join(", ")}`,
    });
  }
  return `(${is("y")})::INTEGER::DOUBLE`;
}

/** SQL of both as values that are equal where the label is the predicted one. */
async function labelsOf(
  join: RowJoin,
  { predicted, labelled }: { readonly predicted: ColumnType; readonly labelled: ColumnType },
  { label, prediction }: EvaluationRequest,
): Promise<Omit<JudgedAs, "kind">> {
  if (showType(predicted) === showType(labelled) || comparableKind(predicted, labelled) !== undefined) {
    return { score: "p", truth: "y" };
  }
  // Texts are read as values of the other side's type.
  const shared = predicted === "utf8" ? labelled : predicted;
  const read = (value: string): string =>
    isNumber(shared) ? exactSql(value) : `try_cast(${value}::VARCHAR AS ${sqlTypeOf(shared)})::VARCHAR`;
  let canEqual = labelled === "utf8" || (isNumber(predicted) && isNumber(labelled));
  if (labelled === "utf8") {
    const hint = `the predictions are ${showType(predicted)}: name labels of such a type with --label`;
    await refuseTexts(join, label, isNumber(shared) ? numberSql : read, hint);
  } else if (predicted === "utf8") {
    const column = quoteName(prediction);
    const [[areRead] = []] = await selectRowsOf(
      join,
      `SELECT count(${column}) = 0 OR count(${read(column)}) > 0 FROM a`,
    );
    canEqual = areRead === true;
  }
  if (!canEqual) {
    const found = `a prediction is ${showType(predicted)}, a label ${showType(labelled)}`;
    throw new JobError("USAGE", `evaluating ${prediction} by ${label}: ${found}`, {
      hint: "name columns whose values can be equal with --prediction and --label",
    });
  }
  return { score: `coalesce(${read("p")}, p::VARCHAR)`, truth: read("y") };
}

async function refuseTexts(join: RowJoin, label: string, read: (value: string) => string, hint: string): Promise<void> {
  const column = quoteName(label);
  const [[text] = []] = await selectRowsOf(
    join,
    `SELECT any_value(${column}::VARCHAR) FROM b WHERE ${read(column)} IS NULL`,
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

interface FiguresRequest {
  readonly kind: Evaluated["kind"];
  /** SQL of the rows of the table `judged`. */
  readonly where: string;
  readonly threshold: number;
}

async function figuresOf(join: RowJoin, { kind, where, threshold }: FiguresRequest): Promise<Figures> {
  const { connection } = join;
  const isJudged = "score IS NOT NULL AND truth IS NOT NULL";
  const both = `judged WHERE ${isJudged} AND ${where}`;
  const [rows, labelled, judged] = await numbersOf(
    connection,
    `SELECT count(*), count(truth), count(*) FILTER (${isJudged}) FROM judged WHERE ${where}`,
  );
  const figures = { rows, rows_labelled: labelled, rows_judged: judged, calibration: [] };
  if (kind === "labels") {
    const [right] = await numbersOf(connection, `SELECT count(*) FROM ${both} AND score = truth`);
    return { ...figures, values: { accuracy: right / judged } };
  }
  if (kind === "numbers") {
    const [mae, squared, bias] = await numbersOf(
      connection,
      `SELECT fsum(abs(score - truth)) / count(*), fsum((score - truth) ** 2) / count(*), fsum(score - truth) / count(*)
        FROM ${both}`,
    );
    return { ...figures, values: { mae, rmse: Math.sqrt(squared), bias } };
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
  const calibration = await selectRowsOf(
    join,
    `SELECT fsum(score) / count(*), fsum(truth) / count(*), count(*)::DOUBLE FROM ${both}
      GROUP BY len(list_filter([${edges.join(", ")}]::DOUBLE[], edge -> edge < score)) ORDER BY 1`,
  );
  const auc = above / (2 * positives * (judged - positives));
  return {
    ...figures,
    values: { auc, log_loss: loss / judged, precision: hits / alarms, recall: hits / positives },
    calibration: calibration.map(([predicted, observed, count]) => ({
      predicted: Number(predicted),
      observed: Number(observed),
      rows: Number(count),
    })),
  };
}
