import { comparableKind } from "../checks/agreement.js";
import type { Evaluated, EvaluationRequest, Figures } from "../checks/evaluation.js";
import type { ColumnType } from "../columnar/types.js";
import { JobError } from "../util/errors.js";
import { numbersOf, quantiles } from "./agreement.js";
import { convertingKeys, sharedKey } from "./key-types.js";
import { type RowJoin, rowsOf } from "./row-join.js";
import { quoteName, quoteText } from "./sql.js";

/** The number of slices that are shown, those with the most rows. */
const mostSlices = 50;
/** Probabilities of 0 and 1 are moved by so much before their logarithm is taken, as scikit-learn does. */
const least = 2 ** -52;

/**
 * Judges the predictions in table `a` by the labels in table `b`, joined by key. A key with several labels has none.
 * @throws JobError USAGE for labels that are no numbers where the predictions are some
 */
export async function evaluateRows(join: RowJoin, request: EvaluationRequest): Promise<Evaluated> {
  const { connection } = join;
  const { key, label, prediction, by, date } = request;
  const keys = await sharedKey(connection, key);
  const predicted = typeOf(join, "a", prediction);
  const labelled = typeOf(join, "b", label);
  const isOfLabels = by !== undefined && !join.columns.a.some(({ name }) => name === by);
  const named = keys.map(({ sql }, index) => `${sql} AS k${index}`).join(", ");
  const k = keys.map((_, index) => `k${index}`);
  const ofDate = date === undefined ? "true" : `${quoteName(date.column)}::VARCHAR = ${quoteText(date.value)}`;
  const slice = isOfLabels ? `, any_value(${quoteName(by)}::VARCHAR) AS slice` : "";
  await convertingKeys(keys, async () => {
    await connection.run(
      `CREATE OR REPLACE TEMP TABLE labels AS SELECT ${k.join(", ")}, any_value(y) AS y, count(*) AS n${slice}
        FROM (SELECT ${named}, ${quoteName(label)} AS y, * FROM b WHERE ${ofDate}) GROUP BY ${k.join(", ")}`,
    );
    const kind = await kindOf(join, { predicted, labelled }, request);
    const [p, y] = valuesOf(kind, { predicted, labelled }, request);
    const own = by === undefined || isOfLabels ? "" : `, ${quoteName(by)}::VARCHAR AS slice`;
    await connection.run(
      `CREATE OR REPLACE TEMP TABLE judged AS SELECT p, y${by === undefined ? "" : ", slice"}, ${p} AS score, ${y} AS truth
        FROM (SELECT ${named}, ${quoteName(prediction)} AS p${own} FROM a) AS a
        LEFT JOIN (SELECT * FROM labels WHERE n = 1) AS labels ON ${k.map((name) => `a.${name} = labels.${name}`).join(" AND ")}`,
    );
  });
  const kind = await kindOf(join, { predicted, labelled }, request);
  const [repeated] = await numbersOf(connection, "SELECT count(*) FROM labels WHERE n > 1");
  const slices =
    by === undefined
      ? []
      : await rowsOf(join, `SELECT slice FROM judged GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT ${mostSlices}`);
  const bySlice = new Map<string, Figures>();
  for (const [found] of slices) {
    const value = typeof found === "string" ? found : null;
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

const numberOfLabel = "coalesce(try_cast(y::VARCHAR AS DOUBLE), try_cast(y::VARCHAR AS BOOLEAN)::INTEGER::DOUBLE)";

/** How predictions are judged: as the probability of a class, as numbers, or as labels that are right or wrong. */
async function kindOf(
  join: RowJoin,
  { predicted, labelled }: Types,
  { positive, label }: EvaluationRequest,
): Promise<Evaluated["kind"]> {
  if (comparableKind(predicted, predicted) !== "numbers") {
    return "labels";
  }
  if (positive !== undefined || labelled === "bool") {
    return "classes";
  }
  const [[wrong, hasNumbers] = []] = await rowsOf(
    join,
    `SELECT any_value(y::VARCHAR) FILTER (${numberOfLabel} IS NULL), bool_or(${numberOfLabel} NOT IN (0, 1))
      FROM labels WHERE y IS NOT NULL`,
  );
  if (typeof wrong === "string") {
    throw new JobError("USAGE", `evaluating by ${label}: ${JSON.stringify(wrong)} is no number`, {
      hint: "name the label of the class whose probability is predicted with --positive",
    });
  }
  return hasNumbers === true ? "numbers" : "classes";
}

/** SQL of a prediction and of a label as they are judged. */
function valuesOf(
  kind: Evaluated["kind"],
  { predicted, labelled }: Types,
  { positive }: EvaluationRequest,
): readonly [string, string] {
  if (kind === "labels") {
    return predicted === labelled ? ["p", "y"] : ["p::VARCHAR", "y::VARCHAR"];
  }
  const score = "CASE WHEN isfinite(p::DOUBLE) THEN p::DOUBLE END";
  return positive === undefined
    ? [score, numberOfLabel]
    : [score, `(y::VARCHAR = ${quoteText(positive)})::INTEGER::DOUBLE`];
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
