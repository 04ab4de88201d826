import { comparableKind, type DifferentRow, type Flip, type Measures } from "../checks/agreement.js";
import { type Scalar, showCell, valueAt } from "../checks/golden-rows.js";
import type { ColumnType } from "../columns/types.js";
import { exactText, floorToScale, scaleOf, withPoint } from "../columns/value-text.js";
import { assertNever } from "../base/errors.js";
import type { DuckDBConnection } from "./instance.js";
import { readColumn } from "./vectors.js";

/** A column of both sides, whose types are comparable. */
export interface JoinedColumn {
  readonly name: string;
  readonly a: ColumnType;
  readonly b: ColumnType;
}

/** How joined rows are told apart: SQL of a number for each, and of what is shown of it. */
export interface RowNames {
  readonly number: string;
  readonly shown: readonly { readonly name: string; readonly sql: string }[];
}

/** The largest precision of a decimal in DuckDB. */
const mostDigits = 38;
const infinite = "'Infinity'::DOUBLE";

/**
 * SQL for how far two values are from each other: the difference of numbers, the seconds between times, 1 minus the cosine
 * of vectors, 1 for different labels. Infinite if only one is a number, or has a direction. NULL: neither is one.
 */
export function distanceSql({ a: typeA, b: typeB }: JoinedColumn, a: string, b: string): string {
  const kind = comparableKind(typeA, typeB);
  const neither = `${a} IS NULL AND ${b} IS NULL`;
  const either = `${a} IS NULL OR ${b} IS NULL`;
  if (kind === "labels") {
    return `CASE WHEN ${differ(a, b, typeA, typeB)} THEN 1.0 ELSE 0.0 END::DOUBLE`;
  }
  if (kind === "numbers") {
    const [x, y] = [doubleSql(a, typeA), doubleSql(b, typeB)];
    return areDecimals(typeA, typeB)
      ? `CASE WHEN ${neither} THEN NULL WHEN ${either} THEN ${infinite}
          ELSE coalesce(try(abs(${a} - ${b}))::VARCHAR::DOUBLE, abs(${x} - ${y})) END`
      : `CASE WHEN isfinite(${x} - ${y}) THEN abs(${x} - ${y})
          WHEN coalesce(${x}, 'NaN') = coalesce(${y}, 'NaN') THEN NULL ELSE ${infinite} END`;
  }
  if (kind === "times") {
    const isInfinite = [a, b].map((value, index) => isInfiniteSql(value, index === 0 ? typeA : typeB)).join(" OR ");
    return `CASE WHEN ${neither} THEN 0.0 WHEN ${either} THEN ${infinite}
      WHEN ${isInfinite} THEN CASE WHEN ${differ(a, b, typeA, typeB)} THEN ${infinite} ELSE 0.0 END
      ELSE ${typeA === "date32" ? `abs(${a} - ${b}) * 86400.0` : `abs(${nanosSql(a, typeA)} - ${nanosSql(b, typeB)})::DOUBLE / 1e9`} END::DOUBLE`;
  }
  const [u, v] = [`${a}::DOUBLE[]`, `${b}::DOUBLE[]`];
  const cosine = `${dot(u, v)} / sqrt(${dot(u, u)} * ${dot(v, v)})`;
  return `CASE WHEN ${neither} THEN NULL WHEN ${u} = ${v} THEN 0.0
    WHEN len(${a}) = len(${b}) AND len(${a}) > 0 AND list_count(${a}) = len(${a}) AND list_count(${b}) = len(${b})
      AND isfinite(${cosine}) THEN 1 - greatest(-1.0, least(1.0, ${cosine}))
    ELSE ${infinite} END`;
}

function dot(one: string, other: string): string {
  return `list_dot_product(${one}, ${other})`;
}

/** SQL for whether two values with distance `d` differ by more than the tolerance, which is exact for decimals. */
export function beyondSql(
  column: JoinedColumn,
  [a, b, d]: readonly [string, string, string],
  tolerance: number,
): string {
  const { a: typeA, b: typeB } = column;
  if (!areDecimals(typeA, typeB)) {
    return `coalesce(${d} > ${comparableKind(typeA, typeB) === "numbers" ? tolerance : 0}, false)`;
  }
  // A difference of this scale is above the tolerance if it is above the tolerance rounded down to this scale.
  const scale = Math.max(scaleOf(typeA) ?? 0, scaleOf(typeB) ?? 0);
  const most = 10n ** BigInt(mostDigits) - 1n;
  const units = floorToScale(tolerance, scale);
  const least = `${withPoint(String(units < most ? units : most), scale)}::DECIMAL(${mostDigits}, ${scale})`;
  return `(coalesce(try(${a} IS DISTINCT FROM ${b}), true) AND coalesce(try(abs(${a} - ${b}) > ${least}), true))`;
}

/** Whether two values are not the same; those that DuckDB cannot bring to one type differ. */
function differ(a: string, b: string, typeA: ColumnType, typeB: ColumnType): string {
  const isDistinct = `${a} IS DISTINCT FROM ${b}`;
  return typeA === typeB ? isDistinct : `coalesce(try(${isDistinct}), true)`;
}

function areDecimals(a: ColumnType, b: ColumnType): boolean {
  return scaleOf(a) !== undefined && scaleOf(b) !== undefined;
}

/** Rounds to a float64 once. DuckDB rounds a decimal of more digits than a float64 has twice, but its text once. */
function doubleSql(value: string, type: ColumnType): string {
  const isLong = typeof type === "object" && type.kind === "decimal" && type.precision > 15;
  return isLong ? `${value}::VARCHAR::DOUBLE` : `${value}::DOUBLE`;
}

/** Nanoseconds have no infinity, and neither have times of day. */
function isInfiniteSql(value: string, type: ColumnType): string {
  const isFinite = typeof type === "string" && (type.endsWith("[ns]") || type.startsWith("time64"));
  return isFinite ? "false" : `NOT isfinite(${value})`;
}

function nanosSql(value: string, type: ColumnType): string {
  const isNanos = typeof type === "string" && type.endsWith("[ns]");
  return isNanos ? `epoch_ns(${value})::HUGEINT` : `epoch_us(${value})::HUGEINT * 1000`;
}

/** The number of rows that are shown of each column, and of pairs of labels. */
const shownRows = 10;
const shownFlips = 256;

/**
 * Computes the figures of a column of the table `joined`, which has it as a⟨index⟩ and b⟨index⟩, and their distance as
 * d⟨index⟩. What takes an order is sorted on the disk if it does not fit in memory.
 */
export async function measureColumn(
  connection: DuckDBConnection,
  column: JoinedColumn & { readonly index: number },
  names: RowNames,
  tolerance: number,
): Promise<Measures> {
  const { index } = column;
  const [a, b, d] = [`a${index}`, `b${index}`, `d${index}`] as const;
  const different = await mostDifferent(connection, column, names);
  const [rows, measured, sum, largest, without, beyond] = await numbersOf(
    connection,
    `SELECT count(*), count(*) FILTER (isfinite(${d})), fsum(${d}) FILTER (isfinite(${d})),
      max(${d}) FILTER (isfinite(${d})), count(*) FILTER (isinf(${d})),
      count(*) FILTER (${beyondSql(column, [a, b, d], tolerance)}) FROM joined`,
  );
  // The last digits of a sum depend on the order.
  const [mean, most] = measured === 0 ? [Number.NaN, Number.NaN] : [Number((sum / measured).toPrecision(14)), largest];
  const kind = comparableKind(column.a, column.b);
  const measures = (figures: Readonly<Record<string, number | undefined>>, flips: readonly Flip[] = []): Measures => ({
    kind: kind as Measures["kind"],
    rows,
    figures: Object.fromEntries(
      Object.entries(figures).map(([name, figure = Number.NaN]) => [name, Number.isFinite(figure) ? figure : null]),
    ),
    flips,
    most: different,
  });
  switch (kind) {
    case "numbers": {
      const [median, p90, p99] = await quantiles(
        connection,
        `SELECT ${d} AS v FROM joined WHERE isfinite(${d})`,
        [0.5, 0.9, 0.99],
      );
      const [x, y] = [doubleSql(a, column.a), doubleSql(b, column.b)];
      return measures({
        rows_beyond_tolerance: beyond,
        largest_difference: most,
        mean_difference: mean,
        psi: await stabilityOfNumbers(connection, [x, y]),
        p99_difference: p99,
        rank_correlation: await rankCorrelation(
          connection,
          `SELECT ${x} AS a, ${y} AS b FROM joined WHERE isfinite(${x} - ${y})`,
        ),
        median_difference: median,
        p90_difference: p90,
      });
    }
    case "labels": {
      const isList = typeof column.a === "object" && column.a.kind === "list";
      const isText = column.a === "utf8" || column.a === "bool";
      const psi = isList ? Number.NaN : await (isText ? stabilityOfTexts : stabilityOfNumbers)(connection, [a, b]);
      return measures({ rows_equal: rows - beyond, psi }, await flipsOf(connection, column));
    }
    case "vectors":
      return measures({
        rows_equal: rows - beyond,
        lowest_cosine: 1 - most,
        mean_cosine: 1 - mean,
        rows_without_cosine: without,
      });
    case "times":
      return measures({ rows_equal: rows - beyond, largest_shift_seconds: measured === 0 ? 0 : most });
    case undefined:
      throw new RangeError(`column ${column.name} has types that cannot be compared`);
    default:
      return assertNever(kind);
  }
}

/** Reads the first row of a query as numbers. */
export async function numbersOf(
  connection: DuckDBConnection,
  sql: string,
): Promise<[number, number, number, number, number, number]> {
  const [row = []] = (await connection.runAndReadAll(sql)).getRows();
  return row.map(Number) as [number, number, number, number, number, number];
}

/** The rows that differ most; of those that differ equally, the ones with the lowest numbers. */
async function mostDifferent(
  connection: DuckDBConnection,
  { index, a, b }: JoinedColumn & { readonly index: number },
  { number, shown: columns }: RowNames,
): Promise<DifferentRow[]> {
  const keys = columns.map(({ sql }) => `left(${sql}::VARCHAR, 200)`);
  const selected = [`${number}::DOUBLE`, `d${index}`, `a${index}`, `b${index}`, ...keys].join(", ");
  const result = await connection.run(
    `SELECT ${selected} FROM joined WHERE d${index} > 0 ORDER BY d${index} DESC, ${number} LIMIT ${shownRows}`,
  );
  const rows: DifferentRow[] = [];
  for (let chunk = await result.fetchChunk(); chunk !== null && chunk.rowCount > 0; chunk = await result.fetchChunk()) {
    const read = chunk;
    const [one, other] = [readColumn(read, 2, a), readColumn(read, 3, b)];
    for (let row = 0; row < chunk.rowCount; row += 1) {
      const keyOf = (_column: unknown, at: number): readonly [string, string | null] => {
        const text = read.getColumnVector(4 + at).getItem(row);
        return [columns[at]?.name ?? "", text === null ? null : String(text)];
      };
      const distance = Number(read.getColumnVector(1).getItem(row));
      rows.push({
        row: Number(read.getColumnVector(0).getItem(row)),
        distance: distance === Number.POSITIVE_INFINITY ? null : distance,
        one: textOf(a, one, row),
        other: textOf(b, other, row),
        ...(columns.length === 0 ? {} : { keys: Object.fromEntries(columns.map(keyOf)) }),
      });
    }
  }
  return rows;
}

const longestText = 60;

/** A prediction, as a reader sees it. */
function textOf(type: ColumnType, column: ReturnType<typeof readColumn>, row: number): string {
  const exact = exactText(type, column, row);
  if (exact !== undefined) {
    return exact;
  }
  const value = valueAt(type, column, row);
  const whole = Array.isArray(value)
    ? `[${value.map((element: Scalar) => showCell(element)).join(", ")}]`
    : showCell(value);
  return whole.length > longestText ? `${whole.slice(0, longestText - 1)}…` : whole;
}

/** The pairs of different labels that occur most, the most frequent first. */
async function flipsOf(
  connection: DuckDBConnection,
  { index, a, b }: JoinedColumn & { readonly index: number },
): Promise<Flip[]> {
  const [one, other] = [`a${index}`, `b${index}`];
  const result = await connection.run(
    `SELECT ${one}, ${other}, count(*)::DOUBLE FROM joined WHERE d${index} > 0 GROUP BY ALL
      ORDER BY 3 DESC, ${one}, ${other} LIMIT ${shownFlips}`,
  );
  const flips: Flip[] = [];
  for (let chunk = await result.fetchChunk(); chunk !== null && chunk.rowCount > 0; chunk = await result.fetchChunk()) {
    const [left, right] = [readColumn(chunk, 0, a), readColumn(chunk, 1, b)];
    for (let row = 0; row < chunk.rowCount; row += 1) {
      flips.push({
        one: textOf(a, left, row),
        other: textOf(b, right, row),
        rows: Number(chunk.getColumnVector(2).getItem(row)),
      });
    }
  }
  return flips;
}

/**
 * Quantiles of the values `v` of a query, between two of them linearly; none if there are no values. `v` is sorted into
 * the table `sorted`, whose rows are numbered in that order.
 */
export async function quantiles(
  connection: DuckDBConnection,
  values: string,
  shares: readonly number[],
): Promise<number[]> {
  await connection.run(`CREATE OR REPLACE TEMP TABLE sorted AS ${values} ORDER BY v`);
  const [rows] = await numbersOf(connection, "SELECT count(*) FROM sorted");
  if (rows === 0) {
    return [];
  }
  const places = shares.map((share) => share * (rows - 1));
  const wanted = [...new Set(places.flatMap((place) => [Math.floor(place), Math.ceil(place)]))];
  const found = await connection.runAndReadAll(
    `SELECT rowid::DOUBLE, v::DOUBLE FROM sorted WHERE rowid IN (${wanted.join(", ")})`,
  );
  const at = new Map(found.getRows().map(([place, value]) => [Number(place), Number(value)]));
  return places.map((place) => {
    const [low, high] = [at.get(Math.floor(place)) ?? Number.NaN, at.get(Math.ceil(place)) ?? Number.NaN];
    return low + (high - low) * (place - Math.floor(place));
  });
}

/**
 * Spearman's rank correlation of the columns a and b of a query: Pearson's of their ranks, where equal numbers share the
 * mean of their ranks. NaN if one is the same number in all rows. Twice a rank is a whole number, so the sums are exact.
 */
async function rankCorrelation(connection: DuckDBConnection, pairs: string): Promise<number> {
  for (const side of ["a", "b"]) {
    await connection.run(`CREATE OR REPLACE TEMP TABLE sorted AS SELECT ${side} AS v FROM (${pairs}) ORDER BY v`);
    await connection.run(
      `CREATE OR REPLACE TEMP TABLE ranks_${side} AS SELECT v, min(rowid) + max(rowid) AS r FROM sorted GROUP BY v`,
    );
  }
  const [product, ofA, ofB] = await numbersOf(
    connection,
    `WITH n AS (SELECT max(rowid) AS least FROM sorted),
      ranked AS (SELECT (ranks_a.r - n.least)::HUGEINT AS x, (ranks_b.r - n.least)::HUGEINT AS y
        FROM (${pairs}) AS p JOIN ranks_a ON p.a = ranks_a.v JOIN ranks_b ON p.b = ranks_b.v, n)
      SELECT sum(x * y)::DOUBLE, sum(x * x)::DOUBLE, sum(y * y)::DOUBLE FROM ranked`,
  );
  await connection.run("DROP TABLE ranks_a; DROP TABLE ranks_b; DROP TABLE sorted");
  return product / Math.sqrt(ofA * ofB);
}

function finite(value: string): string {
  return `isfinite(${value}::DOUBLE)`;
}

const deciles = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
/** Of texts, so many values have bins of their own. */
const mostTexts = 50;

/** The population stability index of two columns, in bins that end at the deciles of the first one. */
async function stabilityOfNumbers(connection: DuckDBConnection, [a, b]: readonly [string, string]): Promise<number> {
  await connection.run(
    `CREATE OR REPLACE TEMP TABLE sorted AS SELECT ${a} AS v FROM joined WHERE ${finite(a)} ORDER BY v`,
  );
  const places = deciles.map((share) => `floor(${share} * n)::BIGINT`).join(", ");
  const edges = await connection.runAndReadAll(
    `SELECT DISTINCT v::VARCHAR, typeof(v), v FROM sorted, (SELECT count(*) AS n FROM sorted)
      WHERE rowid IN (${places}) AND v > (SELECT v FROM sorted WHERE rowid = 0)`,
  );
  // As texts, in which no number is rounded.
  const passed = edges.getRows().map(([edge, type]) => `('${String(edge)}'::${String(type)} <= v)::TINYINT`);
  const counts = async (value: string): Promise<readonly unknown[][]> =>
    (
      await connection.runAndReadAll(
        `SELECT (${["0", ...passed].join(" + ")})::DOUBLE, count(*)::DOUBLE
          FROM (SELECT ${value} AS v FROM joined WHERE ${finite(value)}) GROUP BY 1`,
      )
    ).getRows();
  return stability(passed.length + 1, await counts(a), await counts(b));
}

/** The same of texts: a bin for each of the first column's most frequent ones, one for its others, and one for new ones. */
async function stabilityOfTexts(connection: DuckDBConnection, [a, b]: readonly [string, string]): Promise<number> {
  const ranked = `(SELECT v, least(row_number() OVER (ORDER BY n DESC, v) - 1, ${mostTexts}) AS bin
    FROM (SELECT ${a} AS v, count(*) AS n FROM joined WHERE ${a} IS NOT NULL GROUP BY 1))`;
  const [[bins] = []] = (await connection.runAndReadAll(`SELECT count(DISTINCT bin) + 1 FROM ${ranked}`)).getRows();
  const counts = async (value: string): Promise<readonly unknown[][]> =>
    (
      await connection.runAndReadAll(
        `SELECT coalesce(bin, ${Number(bins) - 1})::DOUBLE, count(*)::DOUBLE
         FROM joined LEFT JOIN ${ranked} AS ranked ON ranked.v = ${value} WHERE ${value} IS NOT NULL GROUP BY 1`,
      )
    ).getRows();
  return stability(Number(bins), await counts(a), await counts(b));
}

/** Half a row more in each bin: none is empty. NaN: one side has no values. */
function stability(bins: number, before: readonly unknown[][], now: readonly unknown[][]): number {
  const shares = (counts: readonly unknown[][]): number[] => {
    const rows = new Map(counts.map(([bin, count]) => [Number(bin), Number(count)]));
    const total = [...rows.values()].reduce((sum, count) => sum + count, 0.5 * bins);
    return Array.from({ length: bins }, (_, bin) => ((rows.get(bin) ?? 0) + 0.5) / total);
  };
  const [left, right] = [shares(before), shares(now)];
  const terms = left.map((share, bin) => (share - (right[bin] ?? 0)) * Math.log(share / (right[bin] ?? 0)));
  return before.length === 0 || now.length === 0 ? Number.NaN : terms.reduce((sum, term) => sum + term, 0);
}
