import type { InputBinding } from "../batch/contract.js";
import { bytesPerElement, type ColumnType } from "../batch/types.js";
import { columnTypeOf, isNumericSqlType } from "../duckdb/vectors.js";
import { quoteName, quotePath } from "../duckdb/instance.js";
import { assertNever } from "../errors.js";
import type { ProjectedColumn, SliceRequest } from "./port.js";

/** Name of the row-number column that DuckDB adds; a column of the file with this name is refused when planning. */
export const rowNumberColumn = "file_row_number";

/** One SELECT: the row number in the file first, then a column for each of the projection. */
export function sliceSql({ path, rowStart, rowEnd, projection }: SliceRequest): string {
  const columns = projection.map((column, index) => `${projectionSql(column)} AS c${index}`);
  return [
    `SELECT ${[rowNumberColumn, ...columns].join(", ")}`,
    `FROM read_parquet(${quotePath(path)}, file_row_number = true, hive_partitioning = false)`,
    `WHERE ${rowNumberColumn} >= ${rowStart} AND ${rowNumberColumn} < ${rowEnd}`,
  ].join(" ");
}

function projectionSql(column: ProjectedColumn): string {
  switch (column.kind) {
    case "plain":
      return quoteName(column.column);
    case "matrix":
      return matrixSql(column.binding);
    default:
      return assertNever(column);
  }
}

function matrixSql({ columns }: InputBinding): string {
  // One list vector whose child data is the packed matrix.
  return `list_value(${columns.map(({ name, sourceType }) => castToFloat32(quoteName(name), sourceType)).join(", ")})`;
}

/** float32 from any numeric type; NULL where an integer is not exactly a float32 or a double overflows it. */
function castToFloat32(sql: string, sourceType: string): string {
  if (!isNumericSqlType(sourceType)) {
    throw new Error(`a ${sourceType} column was bound to a matrix`);
  }
  if (sourceType === "FLOAT") {
    return sql;
  }
  const cast = `TRY_CAST(${sql} AS FLOAT)`;
  return needsExactCheck(sourceType) ? `CASE WHEN TRY_CAST(${cast} AS HUGEINT) = ${sql} THEN ${cast} END` : cast;
}

/** float32 holds every integer of up to 24 bits; doubles and decimals are rounded by contract. */
function needsExactCheck(sourceType: string): boolean {
  const type: ColumnType | undefined = columnTypeOf(sourceType);
  if (type === undefined) {
    return sourceType === "HUGEINT" || sourceType === "UHUGEINT";
  }
  return type !== "float32" && type !== "float64" && bytesPerElement(type) > 2;
}
