import { type Contract, folderColumns } from "../../binding/contract.js";
import type { SourceColumn } from "../../columnar/types.js";
import { firstLine, quoteName } from "../../duckdb/sql.js";
import type { ConnectionPool } from "../../duckdb/instance.js";
import { columnTypeOf } from "../../duckdb/vectors.js";
import { JobError, messageOf } from "../../util/errors.js";
import { didYouMean } from "../../util/suggest.js";
import { checkExpression } from "./check-expression.js";
import { isZonedTime, type NamesInExpression, sessionValues } from "./expression-parts.js";
import { expressionAlias, expressionQuery, isReservedName } from "./expression-sql.js";
import { withMicroseconds } from "./nanoseconds.js";
import { rowNumberColumn, rowsTable, someRows } from "./slice-sql.js";
import type { ShardTables } from "./shard-tables.js";
import type { BoundExpression, Decoder } from "../port.js";

/** Checks expressions before their text becomes part of any SQL, each once. */
export interface ExpressionCheck {
  /** @throws JobError SPEC_INVALID */
  one(text: string): Promise<NamesInExpression>;
  all(expressions: Contract["expressions"]): Promise<void>;
}

export function createExpressionCheck(pool: ConnectionPool): ExpressionCheck {
  const checked = new Map<string, Promise<NamesInExpression>>();
  const one = (text: string): Promise<NamesInExpression> => {
    const known = checked.get(text) ?? pool.use((connection) => checkExpression(connection, text));
    checked.set(text, known);
    return known;
  };
  return {
    one,
    async all(expressions) {
      for (const { text } of expressions?.list ?? []) {
        await one(text);
      }
    },
  };
}

export async function bindExpression(
  tables: ShardTables,
  check: ExpressionCheck,
  { file, text, columns, partitions }: Parameters<Decoder["bindExpression"]>[0],
): Promise<BoundExpression> {
  const names = await check.one(text);
  refuseReserved(text, columns);
  const maybe = columns.filter(({ name }) => names.parameters.has(name) && !names.columns.has(name));
  const used = [...[...names.columns].map((name) => findColumn(name, { text, columns })), ...maybe];
  for (const { name, sourceType } of used) {
    if (isZonedTime(sourceType)) {
      throw invalid(
        text,
        `column \`${name}\` is ${sourceType}`,
        "DuckDB's result for it may depend on the day of the run; it can only be carried",
      );
    }
  }
  const folders = folderColumns(used);
  const inFile = used.filter(({ partition }) => partition !== true);
  try {
    return await tables.use(file, { rows: [], columns: inFile }, async (connection, shard) => {
      const exact = await withMicroseconds(connection, text, used);
      if (exact === undefined) {
        throw invalid(
          text,
          "it uses timestamps in nanoseconds where DuckDB may cut them",
          "give them to functions of dates and times alone, a field by its path, as in event.at; elsewhere cast them first, such as at::TIMESTAMP, or carry the column",
        );
      }
      const rows = rowsTable({ table: shard, folders, partitions }, `${rowNumberColumn} < 0`);
      // Without the row's number, which is no column of the shard; an expression may need none, and SQL needs one.
      const table = `(SELECT NULL AS ${quoteName(expressionAlias(""))}, * EXCLUDE (${rowNumberColumn}) FROM ${rows})`;
      const result = await connection.run(`${expressionQuery(table, `(${exact}\n)`)} LIMIT 0`);
      const [type] = result.columnTypes();
      return {
        text: exact,
        uses: used.map(({ name }) => name),
        sourceType: String(type),
        type: type === undefined ? undefined : columnTypeOf(type),
      };
    });
  } catch (error) {
    if (error instanceof JobError) {
      throw error;
    }
    throw invalid(text, firstLine(messageOf(error)), "compare it with the columns that `infer-batch inspect` shows");
  }
}

/** DuckDB compares names without regard to case. */
function findColumn(name: string, { text, columns }: { text: string; columns: readonly SourceColumn[] }): SourceColumn {
  const found = columns.find((column) => column.name.toLowerCase() === name.toLowerCase());
  if (found === undefined && sessionValues.has(name.toLowerCase())) {
    throw invalid(
      text,
      `\`${name}\` does not depend on the row alone`,
      "the date of the run is a param: ds: ${today}, and ${ds} in the expression",
    );
  }
  if (found === undefined) {
    const names = columns.map((column) => column.name);
    throw invalid(
      text,
      `the shard has no column \`${name}\`${didYouMean(name, names)}`,
      "expressions see the shard's columns and those of its folder names, not each other",
    );
  }
  if (found.type === undefined && found.sourceType.startsWith("DECIMAL")) {
    throw invalid(
      text,
      `column \`${found.name}\` is ${found.sourceType}, of more than 38 digits`,
      "store it otherwise",
    );
  }
  return found;
}

/** Names that the SQL around expressions needs for itself. */
function refuseReserved(text: string, columns: readonly SourceColumn[]): void {
  const reserved = columns.find(({ name }) => isReservedName(name));
  if (reserved !== undefined) {
    throw invalid(
      text,
      `the shard has a column \`${reserved.name}\`, a name that expressions need for themselves`,
      "rename it, or do without input.where and input.columns",
    );
  }
}

function invalid(text: string, found: string, hint: string): JobError {
  return new JobError("SPEC_INVALID", `binding the expression ${text.trim().replaceAll(/\s+/g, " ")}: ${found}`, {
    hint,
  });
}

export async function describeFailure(
  tables: ShardTables,
  check: ExpressionCheck,
  { file, rows, expressions, expression, partitions }: Parameters<Decoder["describeFailure"]>[0],
): Promise<string> {
  await check.one(expression.text);
  const folders = expressions?.folders ?? [];
  const [row = 0] = rows;
  const columns = expression.uses.flatMap((name) => (folders.some((ref) => ref.name === name) ? [] : [{ name }]));
  try {
    await tables.use(file, { rows: [row], columns }, async (connection, shard) => {
      const table = rowsTable({ table: shard, folders, partitions }, someRows([row]));
      await connection.run(expressionQuery(table, `(${expression.text}\n)`));
    });
    return "it fails";
  } catch (error) {
    if (error instanceof JobError) {
      throw error;
    }
    return firstLine(messageOf(error));
  }
}
