import { quoteName, quoteText } from "../../base/sql.js";
import { type DuckDBConnection, createConnectionPool, openDuckDb } from "../../duckdb/instance.js";
import { firstLine } from "../../duckdb/sql.js";
import { JobError, messageOf } from "../../base/errors.js";
import { checkExpression, expressionHint, isObject, parseExpression, sqlOf } from "./check-expression.js";
import type { ColumnType, FixedColumn, OutputRows } from "../../columns/types.js";
import { didYouMean } from "../../base/suggest.js";
import { profileColumn } from "../../checks/profile/column.js";
import type { Finding } from "../../checks/check.js";
import {
  type AggregateName,
  type AggregateProfile,
  type Aggregates,
  aggregateBins,
  aggregateNames,
  aggregateValue,
} from "../../checks/profile/profile.js";
import { createTable, readScalars } from "../../duckdb/vectors.js";
import { printable } from "../../base/texts.js";

interface Aggregate {
  readonly name: AggregateName;
  /** SQL of its argument, which is checked; undefined for `count(*)`. */
  readonly argument: string | undefined;
}

interface Condition {
  readonly aggregates: readonly Aggregate[];
  /** SQL of the condition, which is checked; the value of aggregate i is in column `aggregateColumn(i)`. */
  readonly condition: string;
  /** The output columns that the arguments use. */
  readonly columns: ReadonlySet<string>;
}

const columnPrefix = "infer_batch_aggregate_";

function aggregateColumn(index: number): string {
  return `${columnPrefix}${index}`;
}

function withoutAggregateColumns(message: string): string {
  return message.replaceAll(new RegExp(`${columnPrefix}\\d+`, "g"), "…");
}

/** The SQL that it returns has passed the check of expressions. @throws JobError SPEC_INVALID */
async function parseCondition(connection: DuckDBConnection, text: string): Promise<Condition> {
  if (text.toLowerCase().includes(columnPrefix)) {
    throw new JobError("SPEC_INVALID", `names that begin with ${columnPrefix} are reserved`);
  }
  const found: { name: AggregateName; argument: unknown }[] = [];
  const outer = withoutAggregates(await parseExpression(connection, text), (name, argument) => {
    found.push({ name, argument });
    return aggregateColumn(found.length - 1);
  });
  const condition = await sqlOf(connection, outer);
  const outside = await checkExpression(connection, condition);
  const own = new Set(found.map((_, index) => aggregateColumn(index)));
  const loose = [...outside.columns].find((column) => !own.has(column));
  if (loose !== undefined || found.length === 0) {
    throw new JobError(
      "SPEC_INVALID",
      loose === undefined
        ? "it has no aggregate"
        : `\`${loose}\` is not inside count, sum, avg, min or max, so it has no single value`,
      { hint: "write a condition such as avg(case when score > 0.5 then 1 else 0 end) between 0.05 and 0.2" },
    );
  }
  const aggregates: Aggregate[] = [];
  const columns = new Set<string>();
  for (const { name, argument } of found) {
    const sql = argument === undefined ? undefined : await sqlOf(connection, argument);
    for (const column of sql === undefined ? [] : (await checkExpression(connection, sql)).columns) {
      columns.add(column);
    }
    aggregates.push({ name, argument: sql });
  }
  return { aggregates, condition, columns };
}

/** @param take returns the name of the column that replaces an aggregate */
function withoutAggregates(part: unknown, take: (name: AggregateName, argument: unknown) => string): unknown {
  if (Array.isArray(part)) {
    return part.map((one) => withoutAggregates(one, take));
  }
  if (!isObject(part)) {
    return part;
  }
  const name = aggregateName(part);
  if (name === undefined) {
    return Object.fromEntries(Object.entries(part).map(([key, value]) => [key, withoutAggregates(value, take)]));
  }
  const column = take(name, plainArgument(part, name));
  return { class: "COLUMN_REF", type: "COLUMN_REF", alias: "", query_location: 0, column_names: [column] };
}

function aggregateName({
  class: kind,
  function_name: called,
  schema,
}: Record<string, unknown>): AggregateName | undefined {
  const plain = called === "count_star" ? "count" : called;
  return kind === "FUNCTION" && (schema === "" || schema === "main")
    ? aggregateNames.find((name) => name === plain)
    : undefined;
}

/** The argument of an aggregate; undefined where it counts rows. @throws JobError SPEC_INVALID */
function plainArgument(part: Record<string, unknown>, name: AggregateName): unknown {
  const { children, distinct, filter, order_bys: order } = part;
  const orders: unknown = isObject(order) ? order["orders"] : [];
  const given: readonly unknown[] = Array.isArray(children) ? children : [];
  const found =
    distinct !== false
      ? "DISTINCT"
      : filter !== null
        ? "FILTER"
        : Array.isArray(orders) && orders.length > 0
          ? "ORDER BY"
          : given.length > 1
            ? "more than one argument"
            : undefined;
  if (found !== undefined) {
    throw new JobError("SPEC_INVALID", `\`${name}\` has ${found}, which checks.sql does not support`, {
      hint: "write case when … then … end in place of FILTER; checks.unique finds keys that repeat",
    });
  }
  return given[0];
}

interface OutputColumn {
  readonly name: string;
  readonly type: ColumnType;
}

interface BoundCondition extends Condition {
  readonly name: string;
  readonly text: string;
  /** The index of each aggregate's argument among the expressions. */
  readonly inputs: readonly number[];
}

interface BoundConditions {
  readonly conditions: readonly BoundCondition[];
  /** The different arguments as SQL, each of type DOUBLE. */
  readonly inputs: readonly string[];
}

/** The limit of expressions. Each is computed for each row, and takes about 300 bytes in a span's profile. */
const mostInputs = 32;

async function bindConditions(
  connection: DuckDBConnection,
  texts: Readonly<Record<string, string>>,
  columns: readonly OutputColumn[],
): Promise<BoundConditions> {
  const table = "infer_batch_rows_0";
  const none = columns.map(({ name, type }) => ({ name, type, column: noRows }));
  await createTable(connection, table, { rowCount: 0, columns: none });
  const inputs: string[] = [];
  const conditions: BoundCondition[] = [];
  for (const [name, text] of Object.entries(texts)) {
    try {
      const condition = await parseCondition(connection, text);
      refuseUnknown(condition.columns, columns);
      const places: number[] = [];
      for (const { name: aggregate, argument } of condition.aggregates) {
        const sql = argument === undefined ? "0::DOUBLE" : await inputOf(connection, { table, aggregate, argument });
        places.push(inputs.includes(sql) ? inputs.indexOf(sql) : inputs.push(sql) - 1);
      }
      await requireBoolean(connection, condition);
      conditions.push({ ...condition, name, text, inputs: places });
    } catch (error) {
      throw refusedCondition(name, error);
    }
  }
  await connection.run(`DROP TABLE ${table}`);
  if (inputs.length > mostInputs) {
    throw new JobError(
      "SPEC_INVALID",
      `binding checks.sql: ${inputs.length} different arguments, at most ${mostInputs}`,
    );
  }
  return { conditions, inputs };
}

function conditionQuery({ condition }: Condition, values: readonly string[]): string {
  const columns = values.map((value, index) => `${value} AS ${quoteName(aggregateColumn(index))}`);
  return `SELECT (${condition}\n) FROM (SELECT ${columns.join(", ")})`;
}

async function requireBoolean(connection: DuckDBConnection, condition: Condition): Promise<void> {
  const values = condition.aggregates.map(() => "NULL::DOUBLE");
  const [type] = (await connection.run(`${conditionQuery(condition, values)} WHERE false`)).columnTypes();
  if (String(type) !== "BOOLEAN") {
    throw new JobError("SPEC_INVALID", `the condition is ${String(type)}, expected BOOLEAN`, {
      hint: "write a comparison",
    });
  }
}

const noRows: FixedColumn = { kind: "fixed", elementsPerValue: 1, data: new Uint8Array(0), valid: undefined };

function refuseUnknown(used: ReadonlySet<string>, columns: readonly OutputColumn[]): void {
  const names = columns.map(({ name }) => name);
  const unknown = [...used].find((name) => !names.some((other) => other.toLowerCase() === name.toLowerCase()));
  if (unknown !== undefined) {
    throw new JobError("SPEC_INVALID", `there is no output column \`${unknown}\`${didYouMean(unknown, names)}`, {
      hint: `the output columns are ${names.join(", ")}`,
    });
  }
}

function refusedCondition(name: string, error: unknown): unknown {
  const hint = error instanceof JobError && error.hint !== expressionHint ? error.hint : undefined;
  return new JobError(
    "SPEC_INVALID",
    `binding checks.sql.${name}: ${withoutAggregateColumns(firstLine(messageOf(error)))}`,
    {
      hint: hint ?? "a check is a condition of count, sum, avg, min and max over SQL of the output columns of a row",
      cause: error,
    },
  );
}

/** Returns SQL of an argument as a DOUBLE. An argument that is only counted becomes 0 if it is not NULL. */
async function inputOf(
  connection: DuckDBConnection,
  {
    table,
    aggregate,
    argument,
  }: { readonly table: string; readonly aggregate: AggregateName; readonly argument: string },
): Promise<string> {
  const [type] = (await connection.run(`SELECT (${argument}\n) FROM ${table}`)).columnTypes();
  if (aggregate === "count") {
    return `CASE WHEN (${argument}\n) IS NULL THEN NULL ELSE 0::DOUBLE END`;
  }
  if (!/^(BOOLEAN|U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL)/.test(String(type))) {
    throw new JobError("SPEC_INVALID", `\`${aggregate}\` has type ${String(type)}, expected a number or BOOLEAN`, {
      hint: "only count accepts other types; cast the argument, or write case when … then 1 else 0 end",
    });
  }
  return `(${argument}\n)::DOUBLE`;
}

export interface AggregateOptions {
  readonly columns: readonly OutputColumn[];
  readonly timezone: string;
  readonly memoryBytes: number;
}

/**
 * Opens conditions of aggregates over output columns: their expressions are computed by DuckDB, and aggregated exactly.
 * @throws JobError SPEC_INVALID
 */
export async function openAggregates(
  texts: Readonly<Record<string, string>>,
  { columns, timezone, memoryBytes }: AggregateOptions,
): Promise<Aggregates> {
  const duckdb = await openDuckDb({
    threads: 1,
    memoryBytes,
    allowed: {},
    settings: { TimeZone: quoteText(timezone) },
  });
  const pool = createConnectionPool(duckdb);
  const close = (): Promise<void> => {
    pool.close();
    duckdb[Symbol.dispose]();
    return Promise.resolve();
  };
  try {
    const { conditions, inputs } = await pool.use((connection) => bindConditions(connection, texts, columns));
    const used = new Set(conditions.flatMap((condition) => [...condition.columns].map((name) => name.toLowerCase())));
    let tables = 0;
    return {
      async profile({ rowCount, columns: all }) {
        tables += 1;
        const rows = { rowCount, columns: all.filter(({ name }) => used.has(name.toLowerCase())) };
        const table = `infer_batch_rows_${tables}`;
        return await pool.use((connection) => profileInputs(connection, { table, rows, inputs }));
      },
      results: ({ rows, aggregates = [] }) =>
        pool.use(async (connection) => {
          const results: Finding[] = [];
          for (const condition of conditions) {
            results.push(await decide(connection, condition, { rows, aggregates }));
          }
          return results;
        }),
      [Symbol.asyncDispose]: close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** The most characters of an error message, which may contain a value of any length. */
const errorCharacters = 200;

interface InputRows {
  readonly table: string;
  readonly rows: OutputRows;
  readonly inputs: readonly string[];
}

async function profileInputs(
  connection: DuckDBConnection,
  { table, rows, inputs }: InputRows,
): Promise<AggregateProfile[]> {
  if (rows.columns.length === 0) {
    return inputs.map(() => profileOf(new Float64Array(rows.rowCount))); // count(*) alone
  }
  await createTable(connection, table, rows);
  try {
    const profiles: AggregateProfile[] = [];
    for (const input of inputs) {
      profiles.push(await profileInput(connection, { table, input, rowCount: rows.rowCount }));
    }
    return profiles;
  } finally {
    await connection.run(`DROP TABLE ${table}`);
  }
}

async function profileInput(
  connection: DuckDBConnection,
  { table, input, rowCount }: { readonly table: string; readonly input: string; readonly rowCount: number },
): Promise<AggregateProfile> {
  const data = new Float64Array(rowCount);
  const valid = new Uint8Array(rowCount).fill(1);
  let at = 0;
  try {
    const result = await connection.run(`SELECT ${input} FROM ${table}`);
    for (const chunk of await result.fetchAllChunks()) {
      const values = readScalars(chunk, 0, "float64");
      data.set(values.data as Float64Array, at);
      valid.set(values.valid ?? new Uint8Array(chunk.rowCount).fill(1), at);
      at += chunk.rowCount;
    }
  } catch (error) {
    const said = firstLine(messageOf(error));
    if (/^(Out of Memory|Internal|Fatal|IO) Error/i.test(said)) {
      throw new JobError("MEMORY", `computing checks.sql: ${said}`, { hint: "raise engine.memory", cause: error });
    }
    return { error: printable(said.slice(0, errorCharacters)) };
  }
  if (at !== rowCount) {
    throw new Error(`${at} values of checks.sql came for ${rowCount} rows`);
  }
  return profileOf(data, valid);
}

function profileOf(data: Float64Array<ArrayBuffer>, valid?: Uint8Array): AggregateProfile {
  return profileColumn(
    { name: "", type: "float64" },
    { kind: "fixed", elementsPerValue: 1, data, valid },
    aggregateBins,
  );
}

async function decide(
  connection: DuckDBConnection,
  bound: BoundCondition,
  { rows, aggregates }: { readonly rows: number; readonly aggregates: readonly AggregateProfile[] },
): Promise<Finding> {
  const values = bound.aggregates.map(({ name }, index) => {
    const profile = aggregates[bound.inputs[index] ?? -1] ?? (rows === 0 ? noValues : undefined);
    if (profile === undefined) {
      throw new Error(`the profile of checks.sql.${bound.name} is missing`);
    }
    return "error" in profile ? `undefined (${profile.error})` : aggregateValue(name, profile);
  });
  const isKnown = values.every((value) => typeof value !== "string");
  const outcome = isKnown ? await outcomeOf(connection, conditionQuery(bound, values.map(literalOf))) : null;
  const isTrue = outcome === true;
  return {
    check: "sql",
    column: bound.name,
    level: isTrue ? "pass" : "hold",
    measured: String(outcome ?? "NULL"),
    limit: bound.text,
    against: null,
    numbers: Object.fromEntries(
      values.map((value, index) => [aggregateText(bound.aggregates[index]), numberText(value)] as const),
    ),
  };
}

const noValues = profileOf(new Float64Array(0));

/** Returns the value of an aggregate as SQL. NaN would be greater than every limit, so it becomes NULL. */
function literalOf(value: number | string | null): string {
  return typeof value === "number" && !Number.isNaN(value) ? `${quoteText(String(value))}::DOUBLE` : "NULL::DOUBLE";
}

function aggregateText(aggregate: Aggregate | undefined): string {
  return `${aggregate?.name}(${(aggregate?.argument ?? "*").replaceAll(/\s+/g, " ")})`;
}

function numberText(value: number | string | null): number | string {
  return value === null ? "NULL" : typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
}

/** Returns the value of a condition: true, false or null; or the error if it cannot be computed, such as for a cast. */
async function outcomeOf(connection: DuckDBConnection, sql: string): Promise<boolean | string | null> {
  try {
    return (await connection.runAndReadAll(sql)).getRows()[0]?.[0] as boolean | null;
  } catch (error) {
    return withoutAggregateColumns(firstLine(messageOf(error)));
  }
}
