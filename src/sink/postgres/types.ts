import { assertNever } from "../../util/errors.js";
import type { ColumnType, ScalarType } from "../../columnar/types.js";

/** Postgres types that columns can be written to, by their names in `pg_type`, with their OIDs. */
export const oidOf = {
  bool: 16,
  bytea: 17,
  int8: 20,
  int2: 21,
  int4: 23,
  text: 25,
  json: 114,
  float4: 700,
  float8: 701,
  bpchar: 1042,
  varchar: 1043,
  date: 1082,
  time: 1083,
  timestamp: 1114,
  timestamptz: 1184,
  interval: 1186,
  timetz: 1266,
  numeric: 1700,
  uuid: 2950,
  jsonb: 3802,
} as const;

/** Types of Postgres itself. */
type BuiltInName = keyof typeof oidOf;
/** With `vector` of the extension pgvector, whose OID differs from database to database. */
export type PgName = BuiltInName | "vector";

/** The type of a table's column. */
export interface PgType {
  readonly name: PgName;
  readonly array: boolean;
  /** Length of varchar(n) and char(n), in characters. */
  readonly maxLength: number | undefined;
  /** Precision and scale of numeric(p,s). */
  readonly decimal: { readonly precision: number; readonly scale: number } | undefined;
  /** Numbers of a vector(n); absent: a vector of any length, or another type. */
  readonly dimensions?: number | undefined;
}

export function isPgName(name: string): name is PgName {
  return Object.hasOwn(oidOf, name) || name === "vector";
}

/** SQL's own words for types that have one. */
const sqlNames: Partial<Readonly<Record<PgName, string>>> = {
  bool: "boolean",
  int2: "smallint",
  int4: "integer",
  int8: "bigint",
  float4: "real",
  float8: "double precision",
  bpchar: "character",
  varchar: "character varying",
  time: "time without time zone",
  timetz: "time with time zone",
  timestamp: "timestamp without time zone",
  timestamptz: "timestamp with time zone",
};

/** Shows a type as `format_type` writes it: "numeric(10,2)", "real[]". */
export function sqlOf({ name, array, maxLength, decimal, dimensions }: PgType): string {
  const length = maxLength ?? dimensions;
  const parameters =
    length !== undefined ? `(${length})` : decimal !== undefined ? `(${decimal.precision},${decimal.scale})` : "";
  return `${sqlNames[name] ?? name}${parameters}${array ? "[]" : ""}`;
}

function plain(name: PgName): PgType {
  return { name, array: false, maxLength: undefined, decimal: undefined };
}

const scalars: Readonly<Record<ScalarType, PgName>> = {
  bool: "bool",
  int8: "int2",
  int16: "int2",
  int32: "int4",
  int64: "int8",
  uint8: "int2",
  uint16: "int4",
  uint32: "int8",
  uint64: "numeric",
  float32: "float4",
  float64: "float8",
  utf8: "text",
  binary: "bytea",
  uuid: "uuid",
  date32: "date",
  "time64[us]": "time",
  "time64[ns]": "time",
  "time64[us, zone]": "timetz",
  "timestamp[us]": "timestamp",
  "timestamp[ns]": "timestamp",
  "timestamp[us, UTC]": "timestamptz",
  interval: "interval",
};

/** The type of a column in a table that this program makes. Lists of lists and structs become jsonb. */
export function pgTypeOf(type: ColumnType): PgType {
  if (typeof type === "string") {
    const name = scalars[type];
    return type === "uint64" ? { ...plain(name), decimal: { precision: 20, scale: 0 } } : plain(name);
  }
  switch (type.kind) {
    case "decimal":
      return { ...plain("numeric"), decimal: { precision: type.precision, scale: type.scale } };
    case "list": {
      const element = pgTypeOf(type.element);
      return element.array || element.name === "jsonb" ? plain("jsonb") : { ...element, array: true };
    }
    case "struct":
      return plain("jsonb");
    default:
      return assertNever(type);
  }
}

/** The types, other than its own, that each type can be written to without loss. */
const wider: Partial<Readonly<Record<ScalarType, readonly PgName[]>>> = {
  int8: ["int4", "int8", "float4", "float8", "numeric"],
  int16: ["int4", "int8", "float4", "float8", "numeric"],
  int32: ["int8", "float8", "numeric"],
  int64: ["numeric"],
  uint8: ["int4", "int8", "float4", "float8", "numeric"],
  uint16: ["int8", "float4", "float8", "numeric"],
  uint32: ["float8", "numeric"],
  float32: ["float8"],
  utf8: ["varchar", "bpchar", "json", "jsonb"],
};

const integerDigits: Partial<Readonly<Record<ScalarType, number>>> = {
  int8: 3,
  uint8: 3,
  int16: 5,
  uint16: 5,
  int32: 10,
  uint32: 10,
  int64: 19,
  uint64: 20,
};

/** Whether every value of `type` fits `target`; texts, vectors and extreme dates are checked row by row. */
export function fits(type: ColumnType, target: PgType): boolean {
  const isJson = target.name === "json" || target.name === "jsonb";
  if (typeof type !== "string" && type.kind !== "decimal") {
    if (type.kind === "list" && target.array) {
      return fits(type.element, { ...target, array: false });
    }
    if (target.name === "vector") {
      return type.kind === "list" && type.element === "float32" && !target.array;
    }
    return isJson && !target.array;
  }
  if (target.array) {
    return false;
  }
  if (target.name === "numeric") {
    return fitsNumeric(type, target);
  }
  return typeof type === "string" && (scalars[type] === target.name || wider[type]?.includes(target.name) === true);
}

function fitsNumeric(type: ScalarType | { precision: number; scale: number }, { decimal }: PgType): boolean {
  const [digits, scale] =
    typeof type === "string" ? [integerDigits[type], 0] : [type.precision - type.scale, type.scale];
  return (
    digits !== undefined &&
    (decimal === undefined || (decimal.scale >= scale && decimal.precision - decimal.scale >= digits))
  );
}
