import { assertNever } from "../util/errors.js";
import {
  BIGINT,
  BLOB,
  BOOLEAN,
  DATE,
  DECIMAL,
  DOUBLE,
  DuckDBDecimalType,
  DuckDBListType,
  DuckDBStructType,
  type DuckDBType,
  FLOAT,
  INTEGER,
  INTERVAL,
  LIST,
  SMALLINT,
  TIME,
  TIME_NS,
  TIMESTAMP,
  TIMESTAMP_NS,
  TIMESTAMPTZ,
  TIMETZ,
  TINYINT,
  UBIGINT,
  UINTEGER,
  USMALLINT,
  UTINYINT,
  UUID,
  VARCHAR,
} from "@duckdb/node-api";
import { type ColumnType, type ScalarType, scalarTypes, type StructField } from "../columnar/types.js";

const scalars: Readonly<Record<ScalarType, DuckDBType>> = {
  bool: BOOLEAN,
  int8: TINYINT,
  int16: SMALLINT,
  int32: INTEGER,
  int64: BIGINT,
  uint8: UTINYINT,
  uint16: USMALLINT,
  uint32: UINTEGER,
  uint64: UBIGINT,
  float32: FLOAT,
  float64: DOUBLE,
  utf8: VARCHAR,
  binary: BLOB,
  uuid: UUID,
  date32: DATE,
  "time64[us]": TIME,
  "time64[ns]": TIME_NS,
  "time64[us, zone]": TIMETZ,
  "timestamp[us]": TIMESTAMP,
  "timestamp[ns]": TIMESTAMP_NS,
  "timestamp[us, UTC]": TIMESTAMPTZ,
  interval: INTERVAL,
};

const scalarOf = new Map(scalarTypes.map((type) => [scalars[type].typeId, type]));

/** The DuckDB type of a column type. */
export function duckDbTypeOf(type: ColumnType): DuckDBType {
  if (typeof type === "string") {
    return scalars[type];
  }
  switch (type.kind) {
    case "decimal":
      return DECIMAL(type.precision, type.scale);
    case "list":
      return LIST(duckDbTypeOf(type.element));
    case "struct":
      // Not STRUCT({…}): objects order keys that look like numbers first.
      return new DuckDBStructType(
        type.fields.map(({ name }) => name),
        type.fields.map((field) => duckDbTypeOf(field.type)),
      );
    default:
      return assertNever(type);
  }
}

/** The column type of a DuckDB type; undefined for maps, unions, variants and others without one. */
export function columnTypeOf(type: DuckDBType): ColumnType | undefined {
  if (type instanceof DuckDBDecimalType) {
    return { kind: "decimal", precision: type.width, scale: type.scale };
  }
  if (type instanceof DuckDBListType) {
    const element = columnTypeOf(type.valueType);
    return element === undefined ? undefined : { kind: "list", element };
  }
  if (type instanceof DuckDBStructType) {
    const fields = type.entryNames.map((name, index) => structField(name, type.entryTypes[index]));
    return fields.every((field) => field !== undefined) ? { kind: "struct", fields } : undefined;
  }
  return scalarOf.get(type.typeId);
}

function structField(name: string, type: DuckDBType | undefined): StructField | undefined {
  const fieldType = type === undefined ? undefined : columnTypeOf(type);
  return fieldType === undefined ? undefined : { name, type: fieldType };
}
