import { quoteName } from "../base/sql.js";
import type { ColumnType } from "../columns/types.js";
import { membersOf } from "../columns/value-text.js";
import type { StoredSpans, StoredTable } from "../run/lifecycle/span-record.js";
import type { DuckDBConnection } from "./instance.js";
import { csvRows, quotePath, sqlTypeOf } from "./sql.js";
import { chunksOfQuery, StreamEndedError } from "./stored-rows.js";
import { readColumn } from "./vectors.js";

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
  yield* rowTexts(connection, `read_parquet(${file}, hive_partitioning = false)`, named, Number(rows));
}

/**
 * Bytes, times and types that are not read otherwise are texts here, as `jsonOf` spells them; spans of time are spelled by
 * Postgres. JSON is a text, too, and is cast.
 */
async function* tableRows(
  connection: DuckDBConnection,
  { columns: ofTable, rows }: StoredTable,
  path: string,
  { key, columns }: KeyedColumns,
): AsyncGenerator<KeyValues> {
  const texts = new Set(ofTable.filter(({ type }) => type === "utf8").map(({ name }) => name));
  const json = columns.filter(({ name, type }) => texts.has(name) && isJson(type)).map(({ name }) => quoteName(name));
  const casts = json.map((name) => `CAST(${name} AS JSON) AS ${name}`);
  const from = `(SELECT * ${casts.length === 0 ? "" : `REPLACE (${casts.join()})`} FROM ${csvRows(ofTable, [path])})`;
  const read = columns.map(({ name, type }) =>
    texts.has(name) && !isJson(type) && !isNumber(type) ? ({ name, type: "utf8" } as const) : { name, type },
  );
  yield* rowTexts(connection, from, { key, columns: read }, rows);
}

/** @throws Error when other than `due` rows came */
async function* rowTexts(
  connection: DuckDBConnection,
  from: string,
  named: KeyedColumns,
  due: number,
): AsyncGenerator<KeyValues> {
  const columns = named.columns.map(({ name, type }) => `CAST(${quoteName(name)} AS ${sqlTypeOf(type)})`);
  let rows = 0;
  for await (const chunk of chunksOfQuery(
    connection,
    `SELECT ${[keySql(named.key), ...columns].join()} FROM ${from}`,
  )) {
    rows += chunk.rowCount;
    const read = named.columns.map(({ name, type }, at) => ({ name, type, column: readColumn(chunk, at + 1, type) }));
    const members = membersOf(read);
    const values = Array.from({ length: chunk.rowCount }, (_, row) => `{${members(row)}}`);
    yield { keys: chunk.getColumnValues(0) as (string | null)[], values };
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

/** Whether values of a type can be read from a text of JSON, where bytes and spans of time have a spelling of their own. */
function isJson(type: ColumnType): boolean {
  const isNested = typeof type === "object" && type.kind !== "decimal";
  return isNested && !/"(?:binary|interval|time64)/.test(JSON.stringify(type));
}

function isNumber(type: ColumnType): boolean {
  return typeof type === "string" ? /^u?int\d/.test(type) : type.kind === "decimal";
}
