import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DuckDBDateValue, DuckDBListValue } from "@duckdb/node-api";
import * as arrow from "apache-arrow";
import { projectFolder } from "./cli.js";
import { query, type Row } from "./parquet.js";

export type ArrowKind = "file" | "stream";

/** Writes the rows of a SELECT as an Arrow file or stream, through code that is not ours. */
export async function writeArrow(
  path: string,
  select: string,
  {
    kind = "file",
    batchRows = 50,
    nulls = [],
    dictionaries = [],
  }: {
    readonly kind?: ArrowKind;
    readonly batchRows?: number;
    /** Columns of Arrow's type Null. */
    readonly nulls?: readonly string[];
    /** Columns that are written as places in a dictionary; a file of several batches must have none. */
    readonly dictionaries?: readonly string[];
  } = {},
): Promise<void> {
  const described = await query(`DESCRIBE (${select})`);
  const fields = described.map(({ column_name, column_type }) => {
    const name = String(column_name);
    const type = nulls.includes(name) ? new arrow.Null() : typeOf(String(column_type));
    return arrow.Field.new({
      name,
      type: dictionaries.includes(name) ? new arrow.Dictionary(type, new arrow.Int32()) : type,
      nullable: true,
    });
  });
  const schema = new arrow.Schema(fields);
  const rows = await query(select);
  const batches: arrow.RecordBatch[] = [];
  for (let from = 0; from < rows.length; from += batchRows) {
    batches.push(batchOf(schema, rows.slice(from, from + batchRows)));
  }
  const writer = kind === "file" ? new arrow.RecordBatchFileWriter() : new arrow.RecordBatchStreamWriter();
  writer.reset(undefined, schema);
  for (const batch of batches) {
    writer.write(batch);
  }
  writer.finish();
  await writeFile(path, await writer.toUint8Array());
}

export async function fixtureAsArrow(folder: string, table: string, kind: ArrowKind): Promise<void> {
  const data = join(projectFolder, "fixtures/data", table);
  for (const name of (await readdir(data)).toSorted()) {
    const path = join(folder, name.replace(".parquet", kind === "file" ? ".arrow" : ".arrows"));
    await writeArrow(path, `SELECT * FROM '${join(data, name)}'`, { kind, batchRows: 37 });
  }
}

function batchOf(schema: arrow.Schema, rows: readonly Row[]): arrow.RecordBatch {
  const children = schema.fields.map(
    ({ name, type }) =>
      arrow.vectorFromArray(
        rows.map((row) => plain(row[name])),
        type,
      ).data[0] as arrow.Data,
  );
  return new arrow.RecordBatch(
    schema,
    arrow.makeData({ type: new arrow.Struct(schema.fields), length: rows.length, nullCount: 0, children }),
  );
}

function plain(value: unknown): unknown {
  if (value instanceof DuckDBListValue) {
    return value.items.map(plain);
  }
  return value instanceof DuckDBDateValue ? new Date(value.days * 86_400_000) : value;
}

const scalars: Readonly<Record<string, () => arrow.DataType>> = {
  BIGINT: () => new arrow.Int64(),
  INTEGER: () => new arrow.Int32(),
  SMALLINT: () => new arrow.Int16(),
  TINYINT: () => new arrow.Int8(),
  UTINYINT: () => new arrow.Uint8(),
  FLOAT: () => new arrow.Float32(),
  DOUBLE: () => new arrow.Float64(),
  VARCHAR: () => new arrow.Utf8(),
  DATE: () => new arrow.DateDay(),
  BOOLEAN: () => new arrow.Bool(),
};

function typeOf(sql: string): arrow.DataType {
  const element = /^(.*)\[\]$/.exec(sql)?.[1];
  const make = scalars[sql];
  if (element !== undefined) {
    return new arrow.List(arrow.Field.new({ name: "item", type: typeOf(element), nullable: true }));
  }
  if (make === undefined) {
    throw new TypeError(`no Arrow type for ${sql}`);
  }
  return make();
}
