import type { ColumnType } from "../../columnar/types.js";
import { columnSql } from "./cast-sql.js";
import type { ExpressionCheck } from "./expressions.js";
import { fromRows, rowNumberColumn, someRows } from "./slice-sql.js";
import type { Decoder } from "../port.js";
import type { ShardTables } from "./shard-tables.js";

/** Reads values of some rows as texts, from a shard of any format. */
export async function describeRows(
  tables: ShardTables,
  check: ExpressionCheck,
  request: Parameters<Decoder["describeRows"]>[0],
): ReturnType<Decoder["describeRows"]> {
  const { file, rows, columns, partitions, expressions } = request;
  await check.all(expressions);
  const texts = columns.map((column) => `CAST(${columnSql(column, partitions)} AS VARCHAR)`);
  const folders = expressions?.folders.map(({ name }) => name) ?? [];
  const uses = expressions?.list.flatMap((expression) => expression.uses) ?? [];
  const wanted = new Map<string, ColumnType | undefined>();
  for (const { path, type, partition, computed } of columns) {
    if (partition !== true && computed !== true) {
      wanted.set(path[0] ?? "", path.length === 1 ? type : undefined);
    }
  }
  for (const name of uses) {
    if (!folders.includes(name) && !wanted.has(name)) {
      wanted.set(name, undefined);
    }
  }
  const read = Array.from(wanted, ([name, type]) => ({ name, type }));
  const found = await tables.use(file, { rows, columns: read }, async (connection, table) => {
    const sql = `SELECT ${[rowNumberColumn, ...texts].join(", ")} ${fromRows({ table, expressions, partitions }, someRows(rows))}`;
    return (await connection.runAndReadAll(sql)).getRows();
  });
  return new Map(
    found.map(([row, ...values]) => [Number(row), values.map((value) => (typeof value === "string" ? value : null))]),
  );
}
