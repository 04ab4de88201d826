import type { ColumnType } from "../columnar/types.js";
import { quotePaths, quoteText, sqlTypeOf } from "./sql.js";

/** SQL for the rows of CSV files without a header, as Postgres writes them, with \\N for NULL. */
export function csvRows(
  columns: readonly { readonly name: string; readonly type: ColumnType }[],
  paths: readonly string[],
): string {
  const types = columns.map(({ name, type }) => `${quoteText(name)}: ${quoteText(sqlTypeOf(type))}`).join(", ");
  // Without new_line, DuckDB takes the first line end that it meets, also within quotes, for that of all lines.
  const format = `new_line = '\\n', header = false, delim = ',', quote = '"', escape = '"', nullstr = '\\N', allow_quoted_nulls = false, auto_detect = false`;
  return `read_csv(${quotePaths(paths)}, columns = {${types}}, ${format})`;
}
