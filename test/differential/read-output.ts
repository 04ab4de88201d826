import { join } from "node:path";
import {
  asyncBufferFromFile,
  type FileMetaData,
  parquetMetadataAsync,
  parquetReadObjects,
  type SchemaElement,
} from "hyparquet";
import { compressors } from "hyparquet-compressors";
import { type ColumnType, showType } from "#src/columns/types.js";
import { partNames } from "../support/output.js";
import type { Row } from "../support/parquet.js";
import type { Value } from "./values.js";

/** A part as code reads it that is neither DuckDB nor ours: columns with their types as `showType` names them. */
export interface ReadPart {
  readonly columns: readonly (readonly [string, string])[];
  readonly rows: readonly (readonly Value[])[];
}

const parsers = {
  timestampFromMilliseconds: (millis: bigint): bigint => millis * 1000n,
  timestampFromMicroseconds: (micros: bigint): bigint => micros,
  dateFromDays: (days: number): number => days,
};

/** All parts of a finished run, in the order of their spans. */
export async function readParts(out: string): Promise<ReadPart[]> {
  return await Promise.all((await partNames(out)).map((name) => readPart(join(out, name))));
}

async function readPart(path: string): Promise<ReadPart> {
  const file = await asyncBufferFromFile(path);
  const metadata = await parquetMetadataAsync(file);
  const elements = topLevel(metadata);
  const columns = elements.map((element) => [element.name, typeName(element, metadata)] as const);
  const rows = (await parquetReadObjects({ file, metadata: withRawDecimals(metadata), compressors, parsers })) as Row[];
  return { columns, rows: rows.map((row) => elements.map(({ name }) => valueOf(row[name]))) };
}

/** hyparquet makes floats of decimals: what it does not know to be decimals, it gives as it is stored. */
function withRawDecimals(metadata: FileMetaData): FileMetaData {
  return { ...metadata, schema: metadata.schema.map(withoutDecimal) };
}

function withoutDecimal(element: SchemaElement): SchemaElement {
  const { converted_type: type, logical_type: _, ...stored } = element;
  return type === "DECIMAL" ? stored : element;
}

function topLevel({ schema }: FileMetaData): SchemaElement[] {
  const found: SchemaElement[] = [];
  const skip = (index: number): number => {
    let next = index + 1;
    for (let child = 0; child < (schema[index]?.num_children ?? 0); child += 1) {
      next = skip(next);
    }
    return next;
  };
  for (let index = 1; index < schema.length; index = skip(index)) {
    found.push(schema[index] as SchemaElement);
  }
  return found;
}

function typeName(element: SchemaElement, { schema }: FileMetaData): string {
  if (element.converted_type === "LIST") {
    const inner = schema[schema.indexOf(element) + 2];
    return `list<${inner === undefined ? "?" : leafType(inner)}>`;
  }
  return leafType(element);
}

function leafType(element: SchemaElement): string {
  const { type, converted_type: converted, logical_type: logical } = element;
  const [, unsigned, bits] = /^(U?)INT_(\d+)$/.exec(converted ?? "") ?? [];
  if (bits !== undefined) {
    return `${unsigned === "U" ? "u" : ""}int${bits}`;
  }
  if (logical?.type === "TIMESTAMP") {
    return `timestamp[us${logical.isAdjustedToUTC ? ", UTC" : ""}]`;
  }
  if (converted === "DECIMAL") {
    return showType({
      kind: "decimal",
      precision: element.precision ?? 0,
      scale: element.scale ?? 0,
    } satisfies ColumnType);
  }
  const names: Readonly<Record<string, string>> = {
    UTF8: "utf8",
    DATE: "date32",
    TIMESTAMP_MICROS: "timestamp[us]",
    BOOLEAN: "bool",
    INT32: "int32",
    INT64: "int64",
    FLOAT: "float32",
    DOUBLE: "float64",
  };
  return names[converted ?? type ?? ""] ?? `${type} ${converted}`;
}

function valueOf(value: unknown): Value {
  if (value === undefined || value === null) {
    return null;
  }
  if (value instanceof Uint8Array) {
    return BigInt.asIntN(value.length * 8, BigInt(`0x${Buffer.from(value).toString("hex")}`));
  }
  if (ArrayBuffer.isView(value)) {
    return Array.from(value as unknown as ArrayLike<number>);
  }
  return Array.isArray(value) ? value.map(valueOf) : (value as Value);
}
