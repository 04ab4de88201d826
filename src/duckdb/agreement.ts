import { comparableKind, type DifferentRow, type Flip, type JoinedColumn, type Measures } from "../checks/agreement.js";
import { type Scalar, showCell, valueAt } from "../checks/golden-rows.js";
import type { ColumnType } from "../columns/types.js";
import { exactText, floorToScale, scaleOf, withPoint } from "../columns/value-text.js";
import { assertNever } from "../base/errors.js";
import type { DuckDBConnection } from "./instance.js";
import { readColumn } from "./vectors.js";

export type IndexedColumn = JoinedColumn & { readonly index: number };

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
  // Values that DuckDB cannot bring to one type differ.
  const differ = typeA === typeB ? `${a} IS DISTINCT FROM ${b}` : `coalesce(try(${a} IS DISTINCT FROM ${b}), true)`;
  if (kind === "labels") {
    return `(${differ})::INTEGER::DOUBLE`;
  }
  if (kind === "numbers") {
    const [x, y] = [doubleSql(a, typeA), doubleSql(b, typeB)];
    const exact = areDecimals(typeA, typeB) ? `try(abs(${a} - ${b}))::VARCHAR::DOUBLE` : "NULL";
    return `CASE WHEN isfinite(${x} - ${y}) THEN coalesce(${exact}, abs(${x} - ${y}))
      WHEN coalesce(${x}, 'NaN') = coalesce(${y}, 'NaN') THEN NULL ELSE ${infinite} END`;
  }
  if (kind === "times") {
    return `CASE WHEN NOT ${differ} THEN 0.0 WHEN ${finiteTimeSql(a, typeA)} AND ${finiteTimeSql(b, typeB)}
      THEN ${typeA === "date32" ? `abs(${a} - ${b}) * 86400.0` : `abs(${nanosSql(a, typeA)} - ${nanosSql(b, typeB)})::DOUBLE / 1e9`}
      ELSE ${infinite} END::DOUBLE`;
  }
  const [u, v] = [`${a}::DOUBLE[]`, `${b}::DOUBLE[]`];
  const [product, square] = [
    `list_dot_product(${u}, ${v})`,
    `list_dot_product(${u}, ${u}) * list_dot_product(${v}, ${v})`,
  ];
  const cosine = `${product} / sqrt(${square})`;
  return `CASE WHEN ${a} IS NULL AND ${b} IS NULL THEN NULL WHEN ${u} = ${v} THEN 0.0
    WHEN len(${a}) = len(${b}) AND len(${a}) > 0 AND list_count(${a}) = len(${a}) AND list_count(${b}) = len(${b})
      AND isfinite(${cosine}) THEN 1 - greatest(-1.0, least(1.0, ${cosine}))
    ELSE ${infinite} END`;
}

/** SQL for whether the values of a column of `joined` differ by more than the tolerance, which is exact for decimals. */
export function beyondSql({ a: typeA, b: typeB, index }: IndexedColumn, tolerance: number): string {
  const [a, b, d] = [`a${index}`, `b${index}`, `d${index}`];
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

function areDecimals(a: ColumnType, b: ColumnType): boolean {
  return scaleOf(a) !== undefined && scaleOf(b) !== undefined;
}

/** Rounds to a float64 once. DuckDB rounds a decimal of more digits than a float64 has twice, but its text once. */
function doubleSql(value: string, type: ColumnType): string {
  const isLong = typeof type === "object" && type.kind === "decimal" && type.precision > 15;
  return isLong ? `${value}::VARCHAR::DOUBLE` : `${value}::DOUBLE`;
}

/** Nanoseconds have no infinity, and neither have times of day. */
function finiteTimeSql(value: string, type: ColumnType): string {
  const isAlways = typeof type === "string" && (type.endsWith("[ns]") || type.startsWith("time64"));
  return isAlways ? `${value} IS NOT NULL` : `isfinite(${value})`;
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
  column: IndexedColumn,
  names: RowNames,
  tolerance: number,
): Promise<Measures> {
  const { index } = column;
  const [a, b, d] = [`a${index}`, `b${index}`, `d${index}`] as const;
  const different = await mostDifferent(connection, column, names);
  const [rows, measured, sum, most, without, beyond] = await numbersOf(
    connection,
    `SELECT count(*), count(*) FILTER (isfinite(${d})), fsum(${d}) FILTER (isfinite(${d})),
      max(${d}) FILTER (isfinite(${d})), count(*) FILTER (isinf(${d})),
      count(*) FILTER (${beyondSql(column, tolerance)}) FROM joined`,
  );
  // The last digits of a sum depend on the order.
  const mean = Number((sum / measured).toPrecision(14));
  const kind = comparableKind(column.a, column.b);
  const measures = (figures: Readonly<Record<string, number | undefined>>, flips: readonly Flip[] = []): Measures => {
    const known = Object.entries(figures).map(([name, figure = Number.NaN]) => [
      name,
      Number.isFinite(figure) ? figure : null,
    ]);
    return { kind: kind as Measures["kind"], rows, figures: Object.fromEntries(known), flips, most: different };
  };
  switch (kind) {
    case "numbers": {
      const differences = `SELECT ${d} AS v FROM joined WHERE isfinite(${d})`;
      const [median, p90, p99] = await quantiles(connection, differences, [0.5, 0.9, 0.99]);
      const [x, y] = [doubleSql(a, column.a), doubleSql(b, column.b)];
      const pairs = `SELECT ${x} AS a, ${y} AS b FROM joined WHERE isfinite(${x} - ${y})`;
      return measures({
        rows_beyond_tolerance: beyond,
        largest_difference: most,
        mean_difference: mean,
        psi: await stabilityOfNumbers(connection, [x, y]),
        p99_difference: p99,
        rank_correlation: await rankCorrelation(connection, pairs),
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
    case "vectors": {
      const cosines = { lowest_cosine: 1 - most, mean_cosine: 1 - mean, rows_without_cosine: without };
      return measures({ rows_equal: rows - beyond, ...cosines });
    }
    case "times":
      return measures({ rows_equal: rows - beyond, largest_shift_seconds: most || 0 });
    case undefined:
      throw new RangeError(`column ${column.name} has types that cannot be compared`);
    default:
      return assertNever(kind);
  }
}

/** Reads the first row of a query as numbers. NaN: NULL. */
export async function numbersOf(
  connection: DuckDBConnection,
  sql: string,
): Promise<[number, number, number, number, number, number]> {
  const [row = []] = (await connection.runAndReadAll(sql)).getRows();
  return row.map((value) => Number(value ?? Number.NaN)) as [number, number, number, number, number, number];
}

/** The rows that differ most; of those that differ equally, the ones with the lowest numbers. */
async function mostDifferent(
  connection: DuckDBConnection,
  column: IndexedColumn,
  { number, shown }: RowNames,
): Promise<DifferentRow[]> {
  const d = `d${column.index}`;
  const keys = shown.map(({ sql }) => `left(${sql}::VARCHAR, 200)`);
  const rows = await pairsOf(connection, column, {
    select: [`${number}::DOUBLE`, d, ...keys],
    rest: `ORDER BY ${d} DESC, ${number} LIMIT ${shownRows}`,
  });
  return rows.map(({ one, other, about: [row, distance, ...texts] }) => {
    const named = shown.map(({ name }, at) => [name, texts[at] as string | null]);
    return {
      row: Number(row),
      distance: distance === Number.POSITIVE_INFINITY ? null : Number(distance),
      one,
      other,
      keys: named.length === 0 ? undefined : Object.fromEntries(named),
    };
  });
}

async function flipsOf(connection: DuckDBConnection, column: IndexedColumn): Promise<Flip[]> {
  const rest = `GROUP BY ALL ORDER BY 3 DESC, 1, 2 LIMIT ${shownFlips}`;
  const rows = await pairsOf(connection, column, { select: ["count(*)::DOUBLE"], rest });
  return rows.map(({ one, other, about: [count] }) => ({ one, other, rows: Number(count) }));
}

/** Values of a column that differ, as a reader sees them, with what else is selected of them: numbers and texts. */
async function pairsOf(
  connection: DuckDBConnection,
  { index, a, b }: IndexedColumn,
  { select, rest }: { readonly select: readonly string[]; readonly rest: string },
): Promise<{ readonly one: string; readonly other: string; readonly about: readonly unknown[] }[]> {
  const selected = [`a${index}`, `b${index}`, ...select].join(", ");
  const result = await connection.run(`SELECT ${selected} FROM joined WHERE d${index} > 0 ${rest}`);
  const chunks = await result.fetchAllChunks();
  return chunks.flatMap((chunk) => {
    const [left, right] = [readColumn(chunk, 0, a), readColumn(chunk, 1, b)];
    return Array.from({ length: chunk.rowCount }, (_, row) => ({
      one: textOf(a, left, row),
      other: textOf(b, right, row),
      about: select.map((_sql, at) => chunk.getColumnVector(2 + at).getItem(row)),
    }));
  });
}

const longestText = 60;

function textOf(type: ColumnType, column: ReturnType<typeof readColumn>, row: number): string {
  const value = valueAt(type, column, row);
  const text =
    exactText(type, column, row) ??
    (Array.isArray(value) ? `[${value.map((element: Scalar) => showCell(element)).join(", ")}]` : showCell(value));
  return text.length > longestText ? `${text.slice(0, longestText - 1)}…` : text;
}

/**
 * Quantiles of the numbers `v` of a query, between two of them linearly; none if there are no numbers. `v` is sorted into
 * the table `sorted`, whose rows are numbered in that order.
 */
export async function quantiles(
  connection: DuckDBConnection,
  values: string,
  shares: readonly number[],
): Promise<number[]> {
  await connection.run(`CREATE OR REPLACE TEMP TABLE sorted AS ${values} ORDER BY v`);
  const found = await connection.runAndReadAll(
    `SELECT low.v + (high.v - low.v) * (place - floor(place))
      FROM (SELECT unnest([${shares.join(", ")}]::DOUBLE[]) * (count(*) - 1) AS place FROM sorted)
      JOIN sorted AS low ON low.rowid = floor(place)::BIGINT JOIN sorted AS high ON high.rowid = ceil(place)::BIGINT
      ORDER BY place`,
  );
  return found.getRows().map(([value]) => Number(value));
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

export const deciles = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
/** Of texts, so many values have bins of their own. */
const mostTexts = 50;

function finiteSql(value: string): string {
  return `(SELECT ${value} AS v FROM joined WHERE isfinite(${value}::DOUBLE))`;
}

/** The population stability index of two columns, in bins that end at the deciles of the first one. */
async function stabilityOfNumbers(connection: DuckDBConnection, [a, b]: readonly [string, string]): Promise<number> {
  await connection.run(`CREATE OR REPLACE TEMP TABLE sorted AS FROM ${finiteSql(a)} ORDER BY v`);
  const places = deciles.map((share) => `floor(${share} * n)::BIGINT`).join(", ");
  const edges = await connection.runAndReadAll(
    `SELECT DISTINCT v::VARCHAR, typeof(v), v FROM sorted, (SELECT count(*) AS n FROM sorted)
      WHERE rowid IN (${places}) AND v > (SELECT v FROM sorted WHERE rowid = 0)`,
  );
  // As texts, in which no number is rounded.
  const passed = edges.getRows().map(([edge, type]) => `('${String(edge)}'::${String(type)} <= v)::TINYINT`);
  const bins = (value: string): string => `SELECT ${["0", ...passed].join(" + ")} AS bin FROM ${finiteSql(value)}`;
  return await stability(connection, passed.length + 1, [bins(a), bins(b)]);
}

/** The same of texts: a bin for each of the first column's most frequent ones, one for its others, and one for new ones. */
async function stabilityOfTexts(connection: DuckDBConnection, [a, b]: readonly [string, string]): Promise<number> {
  const ranked = `(SELECT v, least(row_number() OVER (ORDER BY n DESC, v) - 1, ${mostTexts}) AS bin
    FROM (SELECT ${a} AS v, count(*) AS n FROM joined WHERE ${a} IS NOT NULL GROUP BY 1))`;
  const [known] = await numbersOf(connection, `SELECT count(DISTINCT bin) FROM ${ranked}`);
  const bins = (value: string): string =>
    `SELECT coalesce(bin, ${known}) AS bin FROM joined LEFT JOIN ${ranked} AS ranked ON v = ${value} WHERE ${value} IS NOT NULL`;
  return await stability(connection, known + 1, [bins(a), bins(b)]);
}

/** Half a row more in each bin: none is empty. NaN: one side has no values. */
async function stability(
  connection: DuckDBConnection,
  bins: number,
  [before, now]: readonly [string, string],
): Promise<number> {
  const shares = (rows: string): string =>
    `SELECT range AS bin, (count(n.bin) + 0.5) / (sum(count(n.bin)) OVER () + ${bins / 2}) AS share, sum(count(n.bin)) OVER () > 0 AS known
      FROM range(${bins}) LEFT JOIN (${rows}) AS n ON n.bin = range GROUP BY 1`;
  const [index] = await numbersOf(
    connection,
    `SELECT if(bool_and(a.known AND b.known), sum((a.share - b.share) * ln(a.share / b.share)), NULL)
      FROM (${shares(before)}) AS a JOIN (${shares(now)}) AS b USING (bin)`,
  );
  return index;
}
