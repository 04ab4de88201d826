import { aggregateBins, type AggregateProfile, type Aggregates, aggregateValue } from "../../checks/profile/profile.js";
import { profileColumn } from "../../checks/profile/column.js";
import type { Finding } from "../../checks/check.js";
import type { OutputRows } from "../../columnar/types.js";
import { createTable, readScalars } from "../../duckdb/vectors.js";
import { createConnectionPool, type DuckDBConnection, openDuckDb } from "../../duckdb/instance.js";
import { firstLine, quoteText } from "../../duckdb/sql.js";
import { JobError, messageOf } from "../../util/errors.js";
import { printable } from "../../util/texts.js";
import { type Aggregate, withoutAggregateColumns } from "./aggregate-parts.js";
import { bindConditions, type BoundCondition, conditionQuery, type OutputColumn } from "./bind-conditions.js";

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
  /** The name of a temporary table for these rows. */
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

/** Returns a value as a verdict stores it in JSON. */
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
