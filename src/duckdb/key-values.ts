import { quoteName } from "../base/sql.js";
import type { ColumnType } from "../columns/types.js";
import type { StoredSpans, StoredTable } from "../run/lifecycle/span-record.js";
import type { DuckDBConnection } from "./instance.js";
import { csvRows, quotePath } from "./sql.js";
import { chunksOfQuery, StreamEndedError } from "./stored-rows.js";

interface TypedColumn {
  readonly name: string;
  readonly type: ColumnType;
}

/** Which columns name a row, and which are looked up. */
export interface KeyedColumns {
  readonly key: readonly TypedColumn[];
  readonly columns: readonly TypedColumn[];
}

/** Rows as texts. A key is null if one of its columns is NULL. */
export interface KeyValues {
  readonly keys: readonly (string | null)[];
  /** JSON objects. */
  readonly values: readonly string[];
}

/** Yields the files of a run, each time in the same order, with their rows. A file lasts until the next one is requested. */
export async function* keyedFiles(
  connection: DuckDBConnection,
  files: StoredTable | StoredSpans,
  named: KeyedColumns,
): AsyncGenerator<() => AsyncGenerator<KeyValues>> {
  for await (const paths of files.groups) {
    for (const path of paths.toSorted()) {
      yield () => ("columns" in files ? tableRows(connection, files, path, named) : partRows(connection, path, named));
    }
  }
}

async function* partRows(connection: DuckDBConnection, path: string, named: KeyedColumns): AsyncGenerator<KeyValues> {
  const file = quotePath(path);
  const [[rows] = []] = (
    await connection.runAndReadAll(`SELECT num_rows::DOUBLE FROM parquet_file_metadata(${file})`)
  ).getRows();
  yield* texts(connection, `read_parquet(${file}, hive_partitioning = false)`, named, Number(rows));
}

/** The columns have the types of the table's. */
async function* tableRows(
  connection: DuckDBConnection,
  { columns: ofTable, rows }: StoredTable,
  path: string,
  { key, columns }: KeyedColumns,
): AsyncGenerator<KeyValues> {
  const inTable = (wanted: readonly TypedColumn[]): readonly TypedColumn[] =>
    wanted.map((column) => ({
      ...column,
      type: ofTable.find(({ name }) => name === column.name)?.type ?? column.type,
    }));
  yield* texts(connection, csvRows(ofTable, [path]), { key: inTable(key), columns: inTable(columns) }, rows);
}

/** @throws Error when other than `due` rows came */
async function* texts(
  connection: DuckDBConnection,
  from: string,
  named: KeyedColumns,
  due: number,
): AsyncGenerator<KeyValues> {
  const sql = `SELECT ${keySql(named.key)}, ${objectSql(named.columns)} FROM ${from}`;
  let rows = 0;
  for await (const chunk of chunksOfQuery(connection, sql)) {
    rows += chunk.rowCount;
    yield { keys: chunk.getColumnValues(0) as (string | null)[], values: chunk.getColumnValues(1) as string[] };
  }
  if (rows !== due) {
    throw new StreamEndedError(`${rows} rows came, ${due} were stored`);
  }
}

/** The text of a key; of several columns joined by `:`, with `%25` and `%3A` for % and : in them, so that no two are equal. */
function keySql(key: readonly TypedColumn[]): string {
  const parts = key.map(({ name }) => `CAST(${quoteName(name)} AS VARCHAR)`);
  return parts.length === 1
    ? (parts[0] ?? "")
    : parts.map((part) => `replace(replace(${part}, '%', '%25'), ':', '%3A')`).join(" || ':' || ");
}

/** A JSON object of columns: names are letters, digits and _. */
function objectSql(columns: readonly TypedColumn[]): string {
  const members = columns.map(
    ({ name, type }) => `'"${name}":' || coalesce(${jsonSql(quoteName(name), type)}, 'null')`,
  );
  return `'{' || ${members.join(" || ',' || ")} || '}'`;
}

/** Floats have the fewest digits that tell them apart; JSON has no NaN and infinity, which become null. */
function jsonSql(value: string, type: ColumnType): string {
  if (isFloat(type)) {
    return `CASE WHEN isfinite(${value}) THEN CAST(${value} AS VARCHAR) END`;
  }
  if (typeof type === "object" && type.kind === "list" && isFloat(type.element)) {
    const element = "coalesce(CASE WHEN isfinite(v) THEN CAST(v AS VARCHAR) END, 'null')";
    return `'[' || array_to_string(list_transform(${value}, v -> ${element}), ',') || ']'`;
  }
  return `CAST(to_json(${value}) AS VARCHAR)`;
}

function isFloat(type: ColumnType): boolean {
  return type === "float32" || type === "float64";
}
