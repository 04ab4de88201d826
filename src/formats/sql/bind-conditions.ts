import type { AggregateName } from "../../checks/profile/profile.js";
import type { ColumnType, FixedColumn } from "../../columnar/types.js";
import { createTable } from "../../duckdb/vectors.js";
import type { DuckDBConnection } from "../../duckdb/instance.js";
import { firstLine, quoteName } from "../../duckdb/sql.js";
import { JobError, messageOf } from "../../util/errors.js";
import { didYouMean } from "../../util/suggest.js";
import { expressionHint } from "./check-expression.js";
import { aggregateColumn, type Condition, parseCondition, withoutAggregateColumns } from "./aggregate-parts.js";

export interface OutputColumn {
  readonly name: string;
  readonly type: ColumnType;
}

/** A condition whose arguments fit the output. */
export interface BoundCondition extends Condition {
  readonly name: string;
  readonly text: string;
  /** The index of each aggregate's argument among the expressions. */
  readonly inputs: readonly number[];
}

export interface BoundConditions {
  readonly conditions: readonly BoundCondition[];
  /** The different arguments as SQL, each of type DOUBLE. */
  readonly inputs: readonly string[];
}

/** The limit of expressions. Each is computed for each row, and takes about 300 bytes in a span's profile. */
const mostInputs = 32;

/** Binds conditions to the columns of the output. @throws JobError SPEC_INVALID */
export async function bindConditions(
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

/** SQL of a condition, given SQL of the values of its aggregates. */
export function conditionQuery({ condition }: Condition, values: readonly string[]): string {
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
