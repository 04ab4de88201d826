import type { ColumnType, SourceColumn } from "../../../columnar/types.js";
import { assertNever } from "../../../util/errors.js";
import type { ArrowField, ArrowSchema, ArrowType } from "./metadata.js";

/** The columns of a shard, with types as docs/types.md has them. */
export function sourceColumns({ fields }: ArrowSchema): SourceColumn[] {
  return fields.map(sourceColumn);
}

function sourceColumn(field: ArrowField): SourceColumn {
  const type = columnTypeOf(field);
  return {
    name: field.name,
    sourceType: showField(field),
    type,
    ...(field.type.kind === "null" && field.dictionary === undefined ? { onlyNulls: true } : {}),
    ...(type === undefined && field.type.kind === "struct" ? { fields: field.children.map(sourceColumn) } : {}),
  };
}

/** The type that a field is read as; undefined: it is not. */
export function columnTypeOf(field: ArrowField): ColumnType | undefined {
  const { type, children, extension } = field;
  switch (type.kind) {
    case "int":
      return `${type.signed ? "int" : "uint"}${type.bits}`;
    case "float":
      return type.bits === 64 ? "float64" : "float32";
    case "decimal":
      return decimalType(type);
    case "date":
      return "date32";
    case "time":
      return type.unit === "ns" ? "time64[ns]" : "time64[us]";
    case "timestamp":
      return type.unit === "ns" ? "timestamp[ns]" : type.zone === undefined ? "timestamp[us]" : "timestamp[us, UTC]";
    case "duration":
      return "int64";
    case "bytes":
    case "view":
      return type.text ? "utf8" : "binary";
    case "fixedBytes":
      return extension === "arrow.uuid" && type.width === 16 ? "uuid" : "binary";
    case "bool":
      return "bool";
    case "list":
    case "listView":
    case "fixedList":
      return listType(children);
    case "struct":
      return structType(children);
    case "null":
    case "interval":
    case "union":
    case "map":
    case "runs":
      return undefined;
    default:
      return assertNever(type);
  }
}

function decimalType({ precision, scale }: ArrowType & { kind: "decimal" }): ColumnType | undefined {
  const fits = precision >= 1 && precision <= 38 && scale >= 0 && scale <= precision;
  return fits ? { kind: "decimal", precision, scale } : undefined;
}

function listType([child, ...others]: readonly ArrowField[]): ColumnType | undefined {
  const element = child === undefined || others.length > 0 ? undefined : columnTypeOf(child);
  return element === undefined ? undefined : { kind: "list", element };
}

function structType(children: readonly ArrowField[]): ColumnType | undefined {
  const fields = children.flatMap((child) => {
    const type = columnTypeOf(child);
    return type === undefined ? [] : [{ name: child.name, type }];
  });
  const names = new Set(fields.map(({ name }) => name.toLowerCase()));
  // DuckDB, which carries and writes them, has no struct without fields, and none with two of one name.
  const usable = fields.length > 0 && fields.length === children.length && names.size === fields.length;
  return usable ? { kind: "struct", fields } : undefined;
}

/** A type as pyarrow writes it: "dictionary<int8, string>", "list<float>". */
export function showField(field: ArrowField): string {
  const shown = showArrowType(field);
  return field.dictionary === undefined
    ? shown
    : `dictionary<${shown}, ${showArrowType({ ...bare, type: field.dictionary.index })}>`;
}

const bare = { name: "", children: [], dictionary: undefined, extension: undefined } as const;

function showArrowType({ type, children }: ArrowField): string {
  const inner = children.map((child) => `${child.name}: ${showField(child)}`).join(", ");
  const element = children[0] === undefined ? "" : showField(children[0]);
  switch (type.kind) {
    case "int":
      return `${type.signed ? "int" : "uint"}${type.bits}`;
    case "float":
      return { 16: "halffloat", 32: "float", 64: "double" }[type.bits];
    case "decimal":
      return `decimal${type.bits}(${type.precision}, ${type.scale})`;
    case "date":
      return type.unit === "day" ? "date32" : "date64";
    case "time":
      return `time${type.bits}[${type.unit}]`;
    case "timestamp":
      return `timestamp[${type.unit}${type.zone === undefined ? "" : `, ${type.zone}`}]`;
    case "duration":
      return `duration[${type.unit}]`;
    case "interval":
      return `interval[${type.unit}]`;
    case "bytes":
      return `${type.large ? "large_" : ""}${type.text ? "string" : "binary"}`;
    case "view":
      return type.text ? "string_view" : "binary_view";
    case "fixedBytes":
      return `fixed_size_binary[${type.width}]`;
    case "list":
      return `${type.large ? "large_" : ""}list<${element}>`;
    case "listView":
      return `${type.large ? "large_" : ""}list_view<${element}>`;
    case "fixedList":
      return `fixed_size_list<${element}>[${type.width}]`;
    case "struct":
      return `struct<${inner}>`;
    case "union":
      return `${type.dense ? "dense" : "sparse"}_union<${inner}>`;
    case "map":
      return `map<${children[0]?.children.map(showField).join(", ") ?? ""}>`;
    case "runs":
      return `run_end_encoded<${children.map(showField).join(", ")}>`;
    case "null":
    case "bool":
      return type.kind;
    default:
      return assertNever(type);
  }
}
